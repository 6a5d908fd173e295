// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Simulated times, compared with closed formulas.
#include "pipeline/simulate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/catch.h"
#include "pipeline/generate.h"
#include "pipeline/options.h"

namespace aikido::pipeline {
namespace {

using testing::with;

Timing timing(int stages, double forward = 1, double input = 1, double weight = 1) {
  StageTimes times{forward, input + weight, input, weight, forward, 0, 0};
  return {std::vector<StageTimes>(static_cast<size_t>(stages), times), {}, {}};
}

Simulation simulated(const GenerateOptions& options, const Timing& timing) {
  auto schedule = generate(options);
  if (!schedule) FAIL(schedule.status().message());
  auto simulation = simulate(*schedule, timing);
  if (!simulation) FAIL(simulation.status().message());
  return *simulation;
}

bool is_close(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max(1.0, std::abs(b));
}

TEST_CASE("GPipe and 1F1B take (m + p - 1) forwards and backwards") {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m)
      for (const auto method : {Method::kGpipe, Method::kOneFOneB, Method::kAsync}) {
        CAPTURE(p, m, name_of(method));
        for (const auto& [f, i, w] : {std::tuple(1.0, 1.0, 1.0), {0.7, 1.1, 0.2}}) {
          const auto times = simulated(with(method, p, m), timing(p, f, i, w));
          REQUIRE(is_close(times.makespan, (m + p - 1) * (f + i + w)));
          for (size_t rank = 0; rank < times.busy.size(); ++rank) {
            REQUIRE(is_close(times.busy[rank], m * (f + i + w)));
            REQUIRE(is_close(times.bubbles[rank], (p - 1.0) / (m + p - 1.0)));
          }
        }
      }
}

TEST_CASE("a zero bubble schedule has a third of that bubble") {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m) {
      CAPTURE(p, m);
      const auto times = simulated(with(Method::kZeroBubble, p, m), timing(p));
      // With fewer micro-batches than ranks, there is less work to fill the bubble.
      REQUIRE(times.makespan == 3 * m + (p - 1) + std::max(0, p - m));
      for (const double busy : times.busy) REQUIRE(busy == 3 * m);
    }
}

TEST_CASE("the bubble of zero bubble is (p - 1)(F + I - W) with other times, too") {
  for (int p = 2; p <= 8; ++p)
    for (const auto& [f, i, w] :
         {std::tuple(1.0, 1.0, 1.0), {1.0, 1.0, 0.5}, {2.0, 2.5, 1.5}, {1.0, 1.2, 0.8}})
      for (int m = 2 * p; m <= 3 * p; ++m) {
        CAPTURE(p, m, f, i, w);
        const auto times =
            simulated(with(Method::kZeroBubble, p, m), timing(p, f, i, w));
        REQUIRE(is_close(times.makespan, m * (f + i + w) + (p - 1) * (f + i - w)));
      }
}

TEST_CASE("v stages on each rank divide the bubble by v") {
  for (int p = 1; p <= 8; ++p)
    for (int m = p; m <= 16; m += p)
      for (int v = 1; v <= 4; ++v) {
        CAPTURE(p, m, v);
        auto options = with(Method::kInterleaved, p * v, m);
        options.stages_per_rank = v;
        const auto times = simulated(options, timing(p * v));
        REQUIRE(times.makespan == 3 * m * v + 3 * (p - 1));
        for (const double busy : times.busy) REQUIRE(busy == 3 * m * v);
      }
}

TEST_CASE("the published makespans of unit times") {
  for (const auto& [p, m, units] :
       {std::tuple(2, 4, 15), {4, 4, 21}, {4, 8, 33}, {8, 16, 69}})
    CHECK(simulated(with(Method::kOneFOneB, p, m), timing(p)).makespan == units);
}

TEST_CASE("without a flush the pace is that of the slowest stage") {
  for (int p = 1; p <= 8; ++p) {
    auto times = timing(p);
    REQUIRE(simulated(with(Method::kAsync, p, 64), times).period == 3.0);
    times.stages[static_cast<size_t>(p) / 2] = {2, 5, 0, 0, 0, 0, 0};
    REQUIRE(simulated(with(Method::kAsync, p, 64), times).period == 7.0);
  }
}

TEST_CASE("a straggler slows all stages by its factor") {
  auto times = timing(4);
  times.slowdown = {1, 1, 2.5, 1};
  const auto slow = simulated(with(Method::kAsync, 4, 64), times);
  CHECK(slow.period == 7.5);
  CHECK(slow.busy[2] == 64 * 7.5);
  CHECK(slow.busy[1] == 64 * 3);
  CHECK(slow.bubbles[2] < 0.05);
  CHECK(slow.bubbles[1] > 0.55);
}

TEST_CASE("stages with replicas, also uneven ones, run at the pace of their number") {
  for (int a = 1; a <= 4; ++a)
    for (int b = 1; b <= 4; ++b)
      for (int c = 1; c <= 4; ++c) {
        CAPTURE(a, b, c);
        const int turn = std::lcm(std::lcm(a, b), c);
        auto options = with(Method::kAsync, 3, turn * (1 + 150 / turn));
        options.replicas = {a, b, c};
        auto times = timing(3);
        for (size_t s = 0; s < 3; ++s) {
          times.stages[s].forward = options.replicas[s];
          times.stages[s].backward = 2 * options.replicas[s];
        }
        const auto simulation = simulated(options, times);
        REQUIRE(simulation.period.has_value());
        REQUIRE(is_close(*simulation.period, 3));
      }
}

TEST_CASE("warm-ups by PipeDream's rule starve uneven replicas") {
  auto options = with(Method::kAsync, 3, 96);
  options.replicas = {1, 2, 1};
  auto times = timing(3);
  times.stages[1].forward = 2;
  times.stages[1].backward = 4;
  CHECK(simulated(options, times).period == 3.0);
  // (machines - 1 - machines before) / replicas, by stage.
  options.warmups = {3, 1, 0};
  CHECK(simulated(options, times).period == 4.5);
}

TEST_CASE("links add their time to the fill, and set the pace if they are slowest") {
  for (int p = 2; p <= 6; ++p) {
    auto times = timing(p);
    times.links.assign(static_cast<size_t>(p) - 1, 0.5);
    const auto gpipe = simulated(with(Method::kGpipe, p, 8), times);
    CHECK(is_close(gpipe.makespan, (8 + p - 1) * 3 + 2 * 0.5 * (p - 1)));
  }
  auto times = timing(2);
  times.links = {5};
  auto options = with(Method::kAsync, 2, 120);
  options.warmups = {8, 0};
  CHECK(simulated(options, times).period == 5.0);
}

TEST_CASE("stages of one rank need no link") {
  auto options = with(Method::kInterleaved, 3, 4);
  options.stages_per_rank = 3;
  auto times = timing(3);
  times.links = {100, 100};
  CHECK(simulated(options, times).makespan == 36);
}

TEST_CASE("sums of replicas and steps come after the last gradient") {
  auto options = with(Method::kOneFOneB, 2, 4);
  options.replicas = {2, 1};
  auto times = timing(2);
  times.stages[0] = {2, 4, 0, 0, 0, 0, 0};
  const double before = simulated(options, times).makespan;
  times.stages[0].reduce = 10;
  times.stages[0].step = 3;
  const auto after = simulated(options, times);
  CHECK(after.makespan == before + 13);
  CHECK(after.busy[0] == 2 * 6 + 3);
  CHECK(after.spans.back().end == 12 + 2);  // rank 2 does not wait for the sums
}

TEST_CASE("recomputing takes time, and least in the last stage") {
  auto options = with(Method::kOneFOneB, 4, 8);
  options.recompute = true;
  const auto times = simulated(options, timing(4));
  CHECK(times.busy == std::vector<double>{32, 32, 32, 24});
}

TEST_CASE("spans of a rank are in order and do not overlap") {
  const auto times = simulated(with(Method::kZeroBubble, 3, 5), timing(3));
  CHECK(times.spans.size() == 3 * (3 * 5 + 1));
  for (size_t i = 1; i < times.spans.size(); ++i) {
    const BusySpan &last = times.spans[i - 1], &next = times.spans[i];
    CHECK((last.rank < next.rank ||
           (last.end <= next.begin && last.instruction < next.instruction)));
  }
}

TEST_CASE("a period that cannot be seen is not reported") {
  CHECK_FALSE(simulated(with(Method::kOneFOneB, 2, 64), timing(2)).period.has_value());
  CHECK_FALSE(simulated(with(Method::kAsync, 4, 11), timing(4)).period.has_value());
  CHECK(simulated(with(Method::kAsync, 4, 12), timing(4)).period == 3.0);
}

TEST_CASE("impossible times and invalid schedules are refused") {
  auto schedule = generate(with(Method::kOneFOneB, 2, 2));
  REQUIRE(schedule.is_ok());
  const auto sentence = [&](const Timing& times) {
    auto simulation = simulate(*schedule, times);
    return simulation ? "" : simulation.status().message();
  };
  CHECK(sentence(timing(3)) == "there are times of 3 stages, and the schedule has 2");
  auto times = timing(2);
  times.links = {1, 1};
  CHECK(sentence(times) ==
        "there are times of 2 links, and 2 stages have 1 between them");
  times.links = {-1};
  CHECK(sentence(times) ==
        "the time of link 0 is -1; it takes a finite number from 0 up");
  times.links = {};
  times.slowdown = {1};
  CHECK(sentence(times) == "there are slow-downs of 1 ranks, and the schedule has 2");
  times.slowdown = {1, 0};
  CHECK(sentence(times) ==
        "the slow-down of rank 1 is 0; it takes a finite number above 0, and 1 is as "
        "fast as the others");
  times = timing(2);
  times.stages[1].step = NAN;
  CHECK(sentence(times) ==
        "the time of stage 1 is nan; it takes a finite number from 0 up");
  schedule->ranks[1].pop_back();
  CHECK(sentence(timing(2)).find("rank 1, instruction ") == 0);
}

}  // namespace
}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/generate.h"

#include <algorithm>

#include "harness/catch.h"
#include "pipeline/executor.h"
#include "pipeline/options.h"
#include "pipeline/validate.h"

namespace aikido::pipeline {
namespace {

using testing::with;

Schedule made(const GenerateOptions& options) {
  auto schedule = generate(options);
  if (!schedule) FAIL(schedule.status().message());
  return *schedule;
}

Validation checked(const Schedule& schedule) {
  auto validation = validate(schedule, {});
  if (!validation) FAIL(validation.status().message() << '\n' << to_text(schedule));
  std::mt19937 dice(5);
  REQUIRE(testing::Executor(schedule).run(dice) == "");
  return *validation;
}

std::vector<int> activations_of(const Validation& validation) {
  std::vector<int> all;
  for (const RankMemory& rank : validation.ranks) all.push_back(rank.activations);
  return all;
}

TEST_CASE("every schedule is valid, and holds the expected number of micro-batches") {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m) {
      CAPTURE(p, m);
      const auto held = [&](Method method) {
        return activations_of(checked(made(with(method, p, m))));
      };
      std::vector<int> down;
      for (int s = 0; s < p; ++s) down.push_back(std::min(m, p - s));
      REQUIRE(held(Method::kGpipe) == std::vector<int>(static_cast<size_t>(p), m));
      REQUIRE(held(Method::kOneFOneB) == down);
      REQUIRE(held(Method::kAsync) == down);
      REQUIRE(held(Method::kZeroBubble) ==
              std::vector<int>(static_cast<size_t>(p), std::min(m, p)));
      for (int each = 1; each <= 3; ++each) {
        auto options = with(Method::kInterleaved, p * each, m);
        options.stages_per_rank = each;
        if (each > 1 && m % std::max(1, m / p) != 0) {
          REQUIRE_FALSE(generate(options).is_ok());
          continue;
        }
        checked(made(options));
        options.method = Method::kZeroBubble;
        checked(made(options));
      }
    }
}

TEST_CASE("PipeDream's versions are as late as stages follow") {
  const auto validation = checked(made(with(Method::kAsync, 4, 12)));
  CHECK(activations_of(validation) == std::vector<int>{4, 3, 2, 1});
  CHECK(validation.lags ==
        std::vector<std::vector<int>>{{0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3},
                                      {0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
                                      {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                      std::vector<int>(12, 0)});
  for (size_t s = 0; s < 4; ++s)
    CHECK(validation.ranks[s].versions == 4 - static_cast<int>(s));
}

TEST_CASE("with vertical sync all stages are as late as the first") {
  auto options = with(Method::kAsync, 4, 12);
  options.weights = WeightPolicy::kVerticalSync;
  const auto validation = checked(made(options));
  for (const auto& lags : validation.lags)
    CHECK(lags == std::vector<int>{0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3});
  CHECK(activations_of(validation) == std::vector<int>{4, 3, 2, 1});
  for (const auto& rank : validation.ranks) CHECK(rank.versions >= 4);
}

TEST_CASE("2BW keeps two versions and is one step late") {
  for (int p = 1; p <= 8; ++p)
    for (int each = p; each <= p + 2; ++each) {
      auto options = with(Method::kAsync, p, 5 * each);
      options.weights = WeightPolicy::kTwoVersions;
      options.micro_batches_per_step = each;
      const auto validation = checked(made(options));
      for (const auto& lags : validation.lags)
        CHECK(lags == std::vector<int>{0, 1, 1, 1, 1});
      for (const auto& rank : validation.ranks) CHECK(rank.versions <= 2);
      int fewest = p;
      while (5 * each % fewest != 0) ++fewest;
      options.micro_batches_per_step.reset();
      CHECK(checked(made(options)).lags[0].size() ==
            static_cast<size_t>(5 * each / fewest));
    }
}

TEST_CASE("a flush has no lag and one version") {
  for (const auto method :
       {Method::kGpipe, Method::kOneFOneB, Method::kInterleaved, Method::kZeroBubble}) {
    const auto validation = checked(made(with(method, 4, 8)));
    CHECK(validation.lags == std::vector<std::vector<int>>(4, {0}));
    for (const auto& rank : validation.ranks) CHECK(rank.versions == 1);
  }
}

TEST_CASE("stages may have any replicas") {
  for (int a = 1; a <= 4; ++a)
    for (int b = 1; b <= 4; ++b)
      for (int c = 1; c <= 4; ++c)
        for (const auto method : {Method::kGpipe, Method::kOneFOneB, Method::kAsync})
          for (int policy = 0; policy < (method == Method::kAsync ? 4 : 1); ++policy) {
            auto options = with(method, 3, method == Method::kAsync ? 48 : 7);
            options.replicas = {a, b, c};
            if (policy > 0) options.weights = static_cast<WeightPolicy>(policy);
            options.recompute = (a + b + c) % 2 == 0;
            CAPTURE(a, b, c, name_of(method), policy);
            auto schedule = generate(options);
            REQUIRE(schedule.is_ok());
            REQUIRE(schedule->num_ranks() == a + b + c);
            checked(*schedule);
          }
}

TEST_CASE("an update of a stage takes a micro-batch from each of its replicas") {
  auto options = with(Method::kAsync, 2, 6);
  options.replicas = {3, 1};
  const auto validation = checked(made(options));
  CHECK(validation.lags[0].size() == 2);
  CHECK(validation.lags[1].size() == 6);
}

TEST_CASE("sums overlap with the next instructions, with any replicas") {
  for (int a = 1; a <= 4; ++a)
    for (int b = 1; b <= 4; ++b)
      for (int c = 1; c <= 4; ++c) {
        auto options = with(Method::kAsync, 3, 48);
        options.replicas = {a, b, c};
        const auto before = checked(made(options));
        options.overlap_sums = true;
        CAPTURE(a, b, c);
        const auto after = checked(made(options));
        CHECK(activations_of(after) == activations_of(before));
        for (size_t s = 0; s < 3; ++s) {
          const int most =
              *std::max_element(before.lags[s].begin(), before.lags[s].end());
          for (const int lag : after.lags[s]) CHECK(lag <= most + 1);
        }
      }
}

TEST_CASE("a slow replica may have fewer turns") {
  for (const auto method : {Method::kGpipe, Method::kOneFOneB}) {
    auto options = with(method, 2, 8);
    options.replicas = {3, 1};
    options.turns = {{0, 1, 0, 1, 2}, {0}};
    const auto schedule = made(options);
    checked(schedule);
    std::vector<int> forwards(4);
    for (size_t rank = 0; rank < 4; ++rank)
      for (const Instruction& it : schedule.ranks[rank])
        forwards[rank] += it.kind == Opcode::kForward;
    CHECK(forwards == std::vector<int>{4, 3, 1, 8});
  }
}

TEST_CASE("recomputing keeps the activations of one micro-batch, and inputs") {
  auto options = with(Method::kOneFOneB, 4, 8);
  options.recompute = true;
  const auto validation = checked(made(options));
  CHECK(activations_of(validation) == std::vector<int>{1, 1, 1, 1});
  std::vector<int> inputs;
  for (const auto& rank : validation.ranks) inputs.push_back(rank.inputs);
  CHECK(inputs == std::vector<int>{4, 3, 2, 0});
}

struct Refusal {
  GenerateOptions options;
  std::string sentence;
};

std::vector<Refusal> refusals_of_stages() {
  std::vector<Refusal> all;
  const auto add = [&](GenerateOptions options, std::string sentence) {
    all.push_back({std::move(options), std::move(sentence)});
  };
  add(with(Method::kGpipe, 0, 4), "stages is 0; it takes 1 to 4096");
  add(with(Method::kGpipe, 4097, 4), "stages is 4097; it takes 1 to 4096");
  add(with(Method::kGpipe, 4, 0), "micro_batches is 0; it takes 1 or more");
  add(with(Method::kGpipe, 4, 2'000'000'000),
      "2000000000 micro_batches on 4 stages are 8000000000 forwards; at most 4194304 "
      "are "
      "scheduled at once");
  auto options = with(Method::kOneFOneB, 3, 4);
  options.replicas = {2, 1};
  add(options, "replicas has 2 numbers and stages is 3; each stage takes one");
  options.replicas = {2, 0, 1};
  add(options, "stage 1 has 0 replicas; it takes 1 or more");
  options.replicas = {2, 1, 5};
  add(options,
      "stage 2 has 5 replicas and there are 4 micro_batches; some replicas would have "
      "none, so take fewer of them or more micro_batches");
  options.replicas = {};
  options.stages_per_rank = 3;
  add(options,
      "stages_per_rank is 3, but 1f1b has one stage on each rank; interleaved_1f1b and "
      "zero_bubble take several");
  options.stages_per_rank = 1;
  options.warmups = {2, 1};
  add(options, "warmups has 2 numbers and stages is 3; each stage takes one");
  options.warmups = {2, -1, 0};
  add(options, "the warmup of stage 1 is -1; it takes 0 or more forwards");
  options.method = Method::kGpipe;
  add(options,
      "warmups are given, but gpipe has its own; 1f1b and 1f1b_async take them");
  options = with(Method::kOneFOneB, 2, 4);
  options.replicas = {4000, 97};
  options.micro_batches = 5000;
  add(options, "the replicas take 4097 ranks; at most 4096 are scheduled");

  options = with(Method::kOneFOneB, 2, 4);
  options.replicas = {2, 1};
  options.turns = {{0, 1}};
  add(options, "turns has 1 lists and stages is 2; each stage takes one");
  options.turns = {{0, 2}, {0}};
  add(options, "the turns of stage 0 name replica 2; it has 2, from 0 on");
  options.turns = {{0, 0, 0, 0, 1}, {0}};
  add(options,
      "the turns of stage 0 give replica 1 none of 4 micro_batches; each takes one or "
      "more");
  options.turns = {{0, 1}, {0}};
  options.method = Method::kAsync;
  add(options,
      "turns are given, but an update of 1f1b_async has one micro-batch of each "
      "replica; gpipe and 1f1b take turns");
  options = with(Method::kZeroBubble, 2, 4);
  options.turns = {{0}, {0}};
  add(options, "turns are given, but zero_bubble takes none; 1f1b and 1f1b_async do");

  options = with(Method::kInterleaved, 8, 7);
  options.stages_per_rank = 4;
  add(options,
      "micro_batches is 7; interleaved_1f1b on 2 ranks takes them in 3 portions of one "
      "size; 6 and 8 can be divided so");
  options.stages_per_rank = 3;
  add(options,
      "stages_per_rank is 3 and stages is 8; it takes a number that divides the "
      "stages");
  options.replicas = {1};
  add(options,
      "replicas are given, but interleaved_1f1b takes none; 1f1b and 1f1b_async do");

  return all;
}

std::vector<Refusal> refusals_of_weights() {
  std::vector<Refusal> all;
  const auto add = [&](GenerateOptions options, std::string sentence) {
    all.push_back({std::move(options), std::move(sentence)});
  };
  auto options = with(Method::kOneFOneB, 2, 4);
  options.weights = WeightPolicy::kStash;
  add(options, "weights is stash, but 1f1b flushes; 1f1b_async takes others");
  options.weights.reset();
  options.micro_batches_per_step = 2;
  add(options,
      "micro_batches_per_step is given, but 1f1b has one step, of all micro_batches; "
      "1f1b_async takes it");
  options.method = Method::kAsync;
  options.micro_batches_per_step = 0;
  add(options, "micro_batches_per_step is 0; it takes 1 or more");
  options.micro_batches_per_step = 3;
  add(options,
      "micro_batches is 4 and micro_batches_per_step is 3, which does not divide it; 3 "
      "and 6 are such a number");
  options.micro_batches_per_step.reset();
  options.weights = WeightPolicy::kFlush;
  add(options, "weights is flush, but 1f1b_async does not; 1f1b does");
  options.weights.reset();
  options.replicas = {3, 1};
  add(options,
      "micro_batches is 4; the 3 replicas of stage 0 add up their gradients every 3 "
      "micro-batches, so it takes a multiple of that: 3 and 6 are one");
  options.weights = WeightPolicy::kVerticalSync;
  options.replicas = {3, 4};
  add(options,
      "micro_batches is 4; with vertical_sync all stages take steps with the same "
      "micro-batches, and the smallest number that all replicas share alike is 12, so "
      "it "
      "takes a multiple of that: 12 is one");
  options = with(Method::kAsync, 4, 6);
  options.weights = WeightPolicy::kTwoVersions;
  options.micro_batches_per_step = 3;
  add(options,
      "an update takes 3 micro-batches and 4 are under way at a time, so they would "
      "need "
      "more than the two versions of 2bw; micro_batches_per_step takes at least 4, and "
      "micro_batches a multiple of it");
  options.overlap_sums = true;
  add(options,
      "overlap_sums is given, and weights is 2bw; it takes 1f1b_async with stash, "
      "where "
      "weights may be an update older");
  options.overlap_sums = false;
  options.micro_batches_per_step.reset();
  options.micro_batches = 3;
  add(options,
      "an update takes 3 micro-batches and 4 are under way at a time, so they would "
      "need "
      "more than the two versions of 2bw; micro_batches_per_step takes at least 4, and "
      "micro_batches a multiple of it");
  return all;
}

TEST_CASE("impossible options are refused with a reason") {
  for (const auto& all : {refusals_of_stages(), refusals_of_weights()})
    for (const auto& [options, sentence] : all) {
      auto schedule = generate(options);
      CAPTURE(sentence);
      REQUIRE_FALSE(schedule.is_ok());
      CHECK(schedule.status().code() == Code::kInvalidArgument);
      CHECK(schedule.status().message() == sentence);
    }
}

TEST_CASE("proposed portions can be made") {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 30; ++m) {
      auto options = with(Method::kInterleaved, 2 * p, m);
      options.stages_per_rank = 2;
      const auto schedule = generate(options);
      if (schedule) continue;
      std::string text = schedule.status().message();
      text = text.substr(text.rfind("; ") + 2);
      for (const size_t from : {size_t{0}, text.find("and ") + 4}) {
        options.micro_batches = std::stoi(text.substr(from));
        CAPTURE(p, m, text);
        CHECK(generate(options).is_ok());
      }
    }
}

TEST_CASE("schedules are known by their names") {
  for (const auto method : {Method::kGpipe, Method::kOneFOneB, Method::kAsync,
                            Method::kInterleaved, Method::kZeroBubble})
    CHECK(*method_named(name_of(method)) == method);
  CHECK(method_named("dual").status().message() ==
        "\"dual\" is no schedule; there are gpipe, 1f1b, 1f1b_async, interleaved_1f1b "
        "and zero_bubble");
}

}  // namespace
}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// What the rule costs over whole traces: against the best fixed deadline that could
// have been chosen knowing the trace, and on a healthy group.
#include <string>

#include "harness/catch.h"
#include "straggler/deadline.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::Delays;
using testing::Dice;
using testing::ms;
using testing::play;
using testing::Played;
using testing::skip_options;

using Trace = std::vector<Delays>;

constexpr int kNumOperations = 600;
constexpr size_t kWarmup = 8;

// The extra delay of `rank` in operation `i`.
using Lateness = std::function<double(int i, int32_t rank, Dice& dice)>;

Trace make_trace(int32_t n, const Lateness& lateness) {
  Dice dice(99);
  Trace trace;
  for (int i = 0; i < kNumOperations; ++i) {
    Delays delays;
    for (int32_t r = 0; r < n; ++r)
      delays.push_back(ms(dice.exponential(2) + lateness(i, r, dice)));
    trace.push_back(delays);
  }
  return trace;
}

struct Cost {
  Duration waited{0};
  int64_t num_lost = 0;
  double total_ms(Duration price) const { return to_ms(waited + price * num_lost); }
};

// One deadline for all members and operations, under the same limit of skips in a row.
Cost cost_of_fixed(const Trace& trace, int32_t quorum, Duration deadline,
                   uint32_t max_consecutive_skips) {
  Cost cost;
  std::vector<uint32_t> in_a_row(trace[0].size());
  for (size_t i = 0; i < trace.size(); ++i) {
    Delays sorted = trace[i];
    std::sort(sorted.begin(), sorted.end());
    const Duration t_q = sorted[static_cast<size_t>(quorum) - 1];
    Duration waited{0};
    for (size_t r = 0; r < trace[i].size(); ++r) {
      const bool must_wait = in_a_row[r] >= max_consecutive_skips;
      if (trace[i][r] - t_q > deadline && !must_wait)
        waited = std::max(waited, deadline);
      if (trace[i][r] - t_q <= deadline || must_wait)
        waited = std::max(waited, trace[i][r] - t_q);
    }
    int64_t num_lost = 0;
    for (size_t r = 0; r < trace[i].size(); ++r) {
      const bool is_lost = trace[i][r] - t_q > waited;
      in_a_row[r] = is_lost ? in_a_row[r] + 1 : 0;
      num_lost += is_lost;
    }
    if (i < kWarmup) continue;
    cost.waited += waited;
    cost.num_lost += num_lost;
  }
  return cost;
}

Cost cost_of_rule(const Trace& trace, Duration compute) {
  const auto n = static_cast<int32_t>(trace[0].size());
  GroupPolicy group(skip_options(), n, UINT64_MAX);
  Cost cost;
  TimePoint start{};
  for (size_t i = 0; i < trace.size(); ++i) {
    start += compute;
    const Played played = play(group, i + 1, start, trace[i]);
    start = played.closed_at;
    if (i < kWarmup) continue;
    cost.waited += played.waited;
    cost.num_lost += n - played.mask.count();
  }
  return cost;
}

double best_fixed_ms(const Trace& trace, Duration price) {
  const auto n = static_cast<int32_t>(trace[0].size());
  const PolicyOptions options = skip_options();
  double best = std::numeric_limits<double>::max();
  for (double d = 0; d < 700; d += d < 20 ? 1 : d / 20) {
    const Cost cost = cost_of_fixed(trace, quorum_of(options, n), ms(d),
                                    options.max_consecutive_skips);
    best = std::min(best, cost.total_ms(price));
  }
  return best;
}

struct Kind {
  const char* name;
  std::function<double(int, int32_t, int32_t, double, Dice&)> lateness;
};

const Kind kKinds[] = {
    {"steady",
     [](int, int32_t r, int32_t, double late, Dice&) { return r == 1 ? late : 0; }},
    {"two-point",
     [](int, int32_t r, int32_t, double late, Dice& dice) {
       return r != 1 ? 0 : dice.uniform() < 0.5 ? late : late / 4;
     }},
    {"drifting",
     [](int i, int32_t r, int32_t, double late, Dice&) {
       return r == 1 ? late * (0.5 - 0.5 * std::cos(i * 6.2832 / 600)) : 0;
     }},
    {"bursty", [](int i, int32_t r, int32_t, double late,
                  Dice&) { return r == 1 && i % 200 < 40 ? late : 0; }},
    {"rotating", [](int i, int32_t r, int32_t n, double late,
                    Dice&) { return i % n == r ? late : 0; }},
    {"a random fifth",
     [](int, int32_t r, int32_t, double late, Dice& dice) {
       return r == 1 && dice.uniform() < 0.2 ? late : 0;
     }},
};

void check_ratio(const Kind& kind, int32_t n, double period_ms, double late_ms) {
  INFO(kind.name << ", " << n << " members, period " << period_ms << " ms, late by "
                 << late_ms << " ms");
  const Trace trace = make_trace(n, [&](int i, int32_t r, Dice& dice) {
    return kind.lateness(i, r, n, late_ms, dice);
  });
  const Duration price = price_of_loss(ms(period_ms), n, skip_options().floor);
  const double ours = cost_of_rule(trace, ms(period_ms)).total_ms(price);
  const double best = best_fixed_ms(trace, price);
  INFO("cost of the rule " << ours << " ms, of the best fixed deadline " << best);
  CHECK(ours <= 1.2 * best);
}

TEST_CASE("the rule costs little more than the best fixed deadline in hindsight") {
  const std::pair<double, double> periods_and_lags[] = {
      {100, 60}, {100, 300}, {400, 150}, {1000, 300}};
  for (const Kind& kind : kKinds)
    for (const auto& [period_ms, late_ms] : periods_and_lags)
      check_ratio(kind, 4, period_ms, late_ms);
}

TEST_CASE("the same in many worlds, periods and lags", "[.][slow]") {
  for (const Kind& kind : kKinds)
    for (const int32_t n : {3, 4, 5, 8, 16})
      for (const double period_ms : {1.0, 100.0, 200.0, 400.0, 1000.0, 5000.0})
        for (const double late_ms : {30.0, 60.0, 150.0, 300.0, 600.0})
          check_ratio(kind, n, period_ms, late_ms);
}

// Operations of 0.3 ms on a shared machine: exponential hiccups of 1 ms, and 1 in
// 10,000 of up to 15 ms.
TEST_CASE("a healthy group with hiccups is not skipped") {
  constexpr int32_t kNum = 4;
  GroupPolicy group(skip_options(), kNum, UINT64_MAX);
  Dice dice(5);
  TimePoint start{};
  int64_t num_skipped = 0;
  for (uint64_t seq = 1; seq <= 100'000; ++seq) {
    Delays delays;
    for (int32_t r = 0; r < kNum; ++r)
      delays.push_back(ms(dice.exponential(1) +
                          (dice.below(10'000) == 0 ? dice.uniform() * 15 : 0)));
    const Played played = play(group, seq, start += ms(0.3), delays, 4096);
    start = played.closed_at;
    num_skipped += kNum - played.mask.count();
  }
  CHECK(num_skipped <= 10);
}

}  // namespace
}  // namespace aikido::straggler

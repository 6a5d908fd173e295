// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// What the rule costs over whole traces: against the best fixed deadline that could
// have been chosen knowing the trace, and on a healthy group.
#include <cstdio>
#include <limits>

#include "harness/catch.h"
#include "straggler/deadline.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::Delays;
using testing::Dice;
using testing::log_of;
using testing::ms;
using testing::play;
using testing::Played;
using testing::skip_options;

constexpr int kNumOperations = 3000;
constexpr size_t kWarmup = 8;
constexpr double kBar = 1.2;

// The lags of all members in one operation, as an owner sees them.
struct Operation {
  Delays delays;  // by rank
  Delays lags;    // the same, after the quorum; none is negative
};
using Trace = std::vector<Operation>;

// The extra delay of `rank` in operation `i`.
using Lateness = std::function<double(int i, int32_t rank, Dice& dice)>;

Trace make_trace(int32_t n, uint64_t seed, const Lateness& lateness) {
  Dice dice(seed);
  Trace trace;
  for (int i = 0; i < kNumOperations; ++i) {
    Operation op;
    for (int32_t r = 0; r < n; ++r)
      op.delays.push_back(ms(dice.exponential(2) + lateness(i, r, dice)));
    Delays sorted = op.delays;
    std::sort(sorted.begin(), sorted.end());
    const Duration t_q = sorted[static_cast<size_t>(quorum_of(skip_options(), n)) - 1];
    for (const Duration delay : op.delays)
      op.lags.push_back(std::max(delay - t_q, Duration::zero()));
    trace.push_back(op);
  }
  return trace;
}

// deadline.h, Note [what waiting is worth].
struct Cost {
  Duration waited{0};
  int64_t num_lost = 0;
  double total_ms(Duration price) const { return to_ms(waited + price * num_lost); }
};

// Of a whole trace, and of its part behind the warm-up.
struct Costs {
  Cost all, warm;
  void add(size_t i, Duration waited, int64_t num_lost) {
    for (Cost* cost : {&all, &warm}) {
      if (cost == &warm && i < kWarmup) continue;
      cost->waited += waited;
      cost->num_lost += num_lost;
    }
  }
};

// One deadline for all members and operations, under the same limit of skips in a row.
Costs cost_of_fixed(const Trace& trace, Duration deadline) {
  Costs costs;
  const uint32_t limit = skip_options().max_consecutive_skips;
  std::vector<uint32_t> in_a_row(trace[0].lags.size());
  for (size_t i = 0; i < trace.size(); ++i) {
    const Delays& lags = trace[i].lags;
    Duration waited{0};
    for (size_t r = 0; r < lags.size(); ++r)
      waited = std::max(waited,
                        in_a_row[r] >= limit ? lags[r] : std::min(lags[r], deadline));
    int64_t num_lost = 0;
    for (size_t r = 0; r < lags.size(); ++r) {
      const bool is_lost = lags[r] > waited;
      in_a_row[r] = is_lost ? in_a_row[r] + 1 : 0;
      num_lost += is_lost;
    }
    costs.add(i, waited, num_lost);
  }
  return costs;
}

Costs cost_of_rule(const Trace& trace, Duration compute) {
  const auto n = static_cast<int32_t>(trace[0].delays.size());
  GroupPolicy group(skip_options(), log_of(n, UINT64_MAX));
  Costs costs;
  TimePoint start{};
  for (size_t i = 0; i < trace.size(); ++i) {
    start += compute;
    const Played played = play(group, i + 1, start, trace[i].delays);
    start = played.closed_at;
    costs.add(i, played.waited, n - played.mask.count());
  }
  return costs;
}

struct Kind {
  const char* name;
  std::function<double(int, int32_t, int32_t, double, Dice&)> lateness;
};

const Kind kKinds[] = {
    {"steady",
     [](int, int32_t r, int32_t, double late, Dice&) { return r == 1 ? late : 0; }},
    {"two-point", [](int, int32_t r, int32_t, double late,
                     Dice& dice) { return r == 1 && dice.uniform() < 0.2 ? late : 0; }},
    {"two lags",
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
                    Dice&) { return i / 100 % n == r ? late : 0; }},
    {"each in turn", [](int i, int32_t r, int32_t n, double late,
                        Dice&) { return i % n == r ? late : 0; }},
};

struct Setting {
  int32_t n;
  double period_ms;  // that all compute
  double late_ms;
  uint64_t seed;
};

// What the rule costs, in parts of what the best fixed deadline does.
struct Ratio {
  double warm = 0;  // behind the warm-up
  double all = 0;
};

Ratio ratio_of(const Kind& kind, const Setting& setting) {
  const Trace trace =
      make_trace(setting.n, setting.seed, [&](int i, int32_t r, Dice& dice) {
        return kind.lateness(i, r, setting.n, setting.late_ms, dice);
      });
  const Duration compute = ms(setting.period_ms);
  const Duration price = std::max(compute / (2 * setting.n), skip_options().floor);
  double warm = std::numeric_limits<double>::max(), all = warm;
  for (double d = 0; d < 700; d += std::max(0.5, d / 50)) {
    const Costs costs = cost_of_fixed(trace, ms(d));
    warm = std::min(warm, costs.warm.total_ms(price));
    all = std::min(all, costs.all.total_ms(price));
  }
  const Costs ours = cost_of_rule(trace, compute);
  return {ours.warm.total_ms(price) / warm, ours.all.total_ms(price) / all};
}

void check_ratio(const Kind& kind, const Setting& setting) {
  INFO(kind.name << ", " << setting.n << " members, period " << setting.period_ms
                 << " ms, late by " << setting.late_ms << " ms, seed " << setting.seed);
  CHECK(ratio_of(kind, setting).warm <= kBar);
}

constexpr std::pair<double, double> kPeriodsAndLags[] = {
    {100, 60}, {100, 300}, {400, 150}, {1000, 300}};

TEST_CASE("the rule costs little more than the best fixed deadline in hindsight") {
  for (const Kind& kind : kKinds)
    for (const int32_t n : {4, 8})
      for (const auto& [period_ms, late_ms] : {kPeriodsAndLags[0], kPeriodsAndLags[2]})
        check_ratio(kind, {n, period_ms, late_ms, 99});
}

// The worst of all periods, lags and seeds: collectives/README.md.
TEST_CASE("the table of what the rule costs", "[.][slow][table]") {
  for (const Kind& kind : kKinds)
    for (const int32_t n : {4, 8}) {
      Ratio worst;
      for (const auto& [period_ms, late_ms] : kPeriodsAndLags)
        for (uint64_t seed = 1; seed <= 5; ++seed) {
          const Ratio ratio = ratio_of(kind, {n, period_ms, late_ms, seed});
          worst = {std::max(worst.warm, ratio.warm), std::max(worst.all, ratio.all)};
        }
      std::printf("%-14s n=%d  %.2f  %.2f\n", kind.name, n, worst.warm, worst.all);
      CHECK(worst.warm <= kBar);
    }
}

TEST_CASE("the same in many worlds, periods and lags", "[.][slow]") {
  for (const Kind& kind : kKinds)
    for (const int32_t n : {3, 4, 5, 8, 16})
      for (const double period_ms : {1.0, 100.0, 200.0, 400.0, 1000.0, 5000.0})
        for (const double late_ms : {30.0, 60.0, 150.0, 300.0, 600.0})
          check_ratio(kind, {n, period_ms, late_ms, 99});
}

// Operations of 0.3 ms on a shared machine: exponential hiccups of 1 ms, and 1 in
// 10,000 of up to 15 ms.
TEST_CASE("a healthy group with hiccups is not skipped") {
  constexpr int32_t kNum = 4;
  GroupPolicy group(skip_options(), log_of(kNum, UINT64_MAX));
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

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Driver that plays operations to a group's policy like an owner: arrivals in the order
// of time, a look when the policy asks for it, the commit at the close, late arrivals
// after it. Also a seeded source of delays that gives the same numbers on all systems.

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "straggler/group_policy.h"

namespace aikido::straggler::testing {

using Delays = std::vector<Duration>;  // by rank, from the start of the operation

constexpr uint64_t kBytes = 1 << 20;

inline Duration ms(double value) {
  return from_ms(value);
}

inline PolicyOptions skip_options() {
  PolicyOptions options;
  options.kind = Kind::kSkip;
  return options;
}

inline std::shared_ptr<ResultLog> log_of(int32_t world_size, uint64_t limit_bytes) {
  return std::make_shared<ResultLog>(world_size, limit_bytes);
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : bits_(seed) {}
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  uint64_t below(uint64_t n) { return bits_() % n; }

 private:
  std::mt19937_64 bits_;
};

struct Played {
  Decision decision;  // the decision that closed it
  RankSet mask;
  Duration waited{0};  // from the quorum to the close
  TimePoint closed_at{};
  bool looks_were_exact = true;  // next_look() is the first time that decide() closes

  bool skipped(int32_t rank) const { return !mask.contains(Rank(rank)); }
};

// All members call at the start. Members that arrive up to the close are in the mask.
// Contributions of the others are cut off. So a lag has no effect on the next
// operation.
inline Played play(GroupPolicy& group, uint64_t seq, TimePoint start,
                   const Delays& delays, uint64_t bytes = kBytes) {
  std::vector<std::pair<Duration, Rank>> order;
  for (size_t r = 0; r < delays.size(); ++r)
    order.emplace_back(delays[r], Rank(static_cast<int32_t>(r)));
  std::sort(order.begin(), order.end());
  const std::unique_ptr<Policy> policy = group.start(Seq(seq), bytes);
  Played played;
  TimePoint now = start;
  auto next = order.begin();
  for (size_t r = 0; r < delays.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    group.history().on_called(rank, Seq(seq), start);
    policy->on_called(rank, start);
  }
  for (;;) {
    played.decision = policy->decide(now);
    if (played.decision.closes()) break;
    const auto look = policy->next_look();
    const TimePoint arrival =
        next == order.end() ? TimePoint::max() : start + next->first;
    AIKIDO_CHECK(look || next != order.end(), "hangs");
    if (look && *look < arrival) {
      played.looks_were_exact &= *look > now && policy->decide(*look).closes() &&
                                 !policy->decide(*look - Duration(1)).closes();
      now = *look;
    } else {
      now = arrival;
      policy->on_arrival((next++)->second, now);
    }
  }
  played.mask = policy->arrived();
  played.closed_at = now;
  if (policy->quorum_time()) played.waited = now - *policy->quorum_time();
  Policy::Progress here;
  for (const Duration delay : delays) {
    const double part = static_cast<double>((now - start).count()) /
                        static_cast<double>(std::max<int64_t>(delay.count(), 1));
    here.push_back(static_cast<uint64_t>(std::min(1.0, part) * 1e15));
  }
  policy->on_close(here, uint64_t{1'000'000'000'000'000}, now);
  group.history().on_committed(Seq(seq), played.mask, bytes);
  return played;
}

// Operations 1 .. count. Each starts `compute` after the close of the previous
// operation.
inline std::vector<Played> play_all(GroupPolicy& group, int count, Duration compute,
                                    const std::function<Delays(int)>& delays_of) {
  std::vector<Played> all;
  TimePoint start{};
  for (int i = 0; i < count; ++i) {
    start += compute;
    all.push_back(play(group, static_cast<uint64_t>(i) + 1, start, delays_of(i)));
    start = all.back().closed_at;
  }
  return all;
}

inline int64_t num_skips(const std::vector<Played>& all, int32_t rank, size_t from = 0,
                         size_t to = SIZE_MAX) {
  int64_t count = 0;
  for (size_t i = from; i < std::min(to, all.size()); ++i)
    count += all[i].skipped(rank);
  return count;
}

}  // namespace aikido::straggler::testing

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Detector of members that again and again delay operations which wait for everybody,
// because they call late or have a slow link (our design). Such a member should own
// nothing. Then it sends S bytes of its data after it has come, and receives S bytes.
// As an owner it must send and receive 2 S (n-1)/n bytes. Its contribution is in every
// result in both cases. One thread, no clock.
//
// Note [when a member is late for a full sum]
// An operation with all contributions took the time from the first to the last of them.
// The lag of a member is its arrival after the contribution that made more than half.
// So a delay of all members gives no member a lag, and fewer than half can be late. A
// member that owns no shard of the operation has g shards to send while an owner has
// g-1: its time is scaled by (g-1)/g. Otherwise a member whose shards were moved would
// be late for ever.
//   A member is late with a lag above kLatePercent of the operation, and in time with a
// lag below kInTimePercent. Between these limits it is neither, so that chance does not
// reverse a finding. A link of half the rate makes a lag of 50 %; several streams of
// TCP in a link now and then make a third. A member is slow if it was late in kMostOf
// of the last kLast operations.
//   Operations that run at the same time are one occasion, the first of them: a late
// step is late with all its buckets, and that is one time, not several. Operations
// shorter than kShortest are not worth a move.

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/types.h"

namespace aikido::straggler {

class Rebalance {
 public:
  static constexpr int kLatePercent = 40;
  static constexpr int kInTimePercent = 25;
  static constexpr size_t kLast = 5;
  static constexpr size_t kMostOf = 4;
  static constexpr Duration kShortest = std::chrono::milliseconds(5);

  explicit Rebalance(int32_t world_size)
      : members_(static_cast<size_t>(world_size)), scaled_(members_.size()) {}

  // The contribution of rank r to a shard was complete at arrivals[r], and all have
  // arrived. `owners`: owners of the operation's shards. Requires: one time per rank.
  void on_operation(std::span<const TimePoint> arrivals, const RankSet& owners);
  // `rank` owns nothing any more, for any reason: it must be in time anew.
  void on_moved(Rank rank) { member(rank) = {}; }

  // True if `rank` should own nothing.
  bool is_slow(Rank rank) const { return member(rank).late.count() >= kMostOf; }
  // Occasions in time since the last late occasion.
  uint32_t in_time_run(Rank rank) const { return member(rank).in_time; }

 private:
  struct LateRecord {
    std::bitset<kLast> late;
    uint32_t in_time = 0;
  };
  LateRecord& member(Rank rank) { return members_[static_cast<size_t>(rank.value)]; }
  const LateRecord& member(Rank rank) const {
    return members_[static_cast<size_t>(rank.value)];
  }

  std::vector<LateRecord> members_;
  std::vector<Duration> scaled_;  // scratch
  TimePoint counted_until_{};
};

}  // namespace aikido::straggler

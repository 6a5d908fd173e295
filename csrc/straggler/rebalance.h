// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Who holds up operations that wait for everybody, again and again, because it calls
// late or its link is slow (our design). Such a member should own nothing: of its data
// it then sends S bytes after it has come, and gets S, instead of 2 S (n-1)/n each way,
// which it must do as owner. It is in every result all the same.
//
// Note [when a member is late for a full sum]
// An operation of which all contributions are here took from the first of them to the
// last. The lag of a member is its arrival after the one that made more than half, so
// what slows all of them is nobody's lag, and fewer than half can be late. A member
// that owns no shard of the operation has g shards to send where an owner has g-1: its
// time is scaled by (g-1)/g, or one whose shards were moved would be late for ever.
// Late is a lag above kLatePercent of the operation, in time one below kInTimePercent;
// between them it is neither, so that chance does not turn a verdict over. A link of
// half the rate makes a lag of 50 %; what TCP makes of several streams in a link is a
// third now and then. A member is slow when it was late in kMostOf of the last kLast
// operations.
//
// Operations that run at the same time are one occasion, the first of them: a step that
// is late is late with all its buckets, and that once is not again and again. What is
// over in less than kShortest is not worth moving anything for.
//
// One thread, no clock.

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

  // The contribution of rank r to a shard has been whole since arrivals[r], and all are
  // here. `owners`: of the shards of the operation. Requires: one for each rank.
  void on_operation(std::span<const TimePoint> arrivals, const RankSet& owners);
  // It owns nothing any more, for whatever reason: it has to be in time anew.
  void on_moved(Rank rank) { member(rank) = {}; }

  // It should own nothing.
  bool is_slow(Rank rank) const { return member(rank).late.count() >= kMostOf; }
  // Occasions in time since the last one that it was late in.
  uint32_t in_time_run(Rank rank) const { return member(rank).in_time; }

 private:
  struct Member {
    std::bitset<kLast> late;
    uint32_t in_time = 0;
  };
  Member& member(Rank rank) { return members_[static_cast<size_t>(rank.value)]; }
  const Member& member(Rank rank) const {
    return members_[static_cast<size_t>(rank.value)];
  }

  std::vector<Member> members_;
  std::vector<Duration> scaled_;  // scratch
  TimePoint counted_until_{};
};

}  // namespace aikido::straggler

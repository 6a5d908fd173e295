// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// When a member must report the number of its last call to one other member. Pure:
// takes events and `now`. One thread.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace aikido::engine {

// Note [reports of calls wait]
// In groups with policies, all members know the number of calls of all others: a late
// member finds how far it is behind, and the waits of the policies are learnt. Most
// frames carry the number. But two members that own no shard of a small call send each
// other nothing, and an owner sends them nothing before the result. A report for each
// call was a third of the frames of a group of four members with a call of 37 KB. So a
// report to a member that owns nothing of the open calls waits for kLongestWait, until
// a frame carries the number. It tells how old the call is, so that times stay right.
class CallReport {
 public:
  // Shorter than all waits that depend on these numbers: a missing owner has 100 ms to
  // answer (membership/view_change.cpp).
  static constexpr Duration kLongestWait = std::chrono::milliseconds(20);

  // `called`: number of the last call here. It must outlive this object.
  explicit CallReport(const uint64_t* called) : called_(called) {}

  // A frame with the number leaves.
  void on_told() { told_ = *called_; }
  bool is_missing() const { return told_ < *called_; }

  // Returns true if a report must leave now. `wait`: longest time since the first
  // unreported call. Call it after each call, and at next_look().
  bool is_due(TimePoint now, Duration wait) {
    if (!is_missing()) return false;
    if (told_ >= first_) {
      first_ = told_ + 1;
      first_at_ = now;
    }
    if (last_ < *called_) {
      last_ = *called_;
      last_at_ = now;
    }
    return now - first_at_ >= wait;
  }
  // Empty: nothing waits.
  std::optional<TimePoint> next_look() const {
    if (!is_missing() || told_ >= first_) return std::nullopt;
    return first_at_ + kLongestWait;
  }
  // Time since the last call, at most kLongestWait, if it is unreported and is_due()
  // has seen it; else zero.
  Duration age(TimePoint now) const {
    const bool is_known = is_missing() && last_ == *called_;
    if (!is_known) return Duration::zero();
    return std::clamp(now - last_at_, Duration::zero(), kLongestWait);
  }

 private:
  const uint64_t* called_;
  uint64_t told_ = 0;   // local number, as the peer knows it
  uint64_t first_ = 0;  // first unreported call, if it exceeds told_
  uint64_t last_ = 0;   // last call that is_due() has seen
  TimePoint first_at_{}, last_at_{};
};

}  // namespace aikido::engine

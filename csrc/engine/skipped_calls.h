// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Collectives that the local member has skipped with the state of another
// member (Group::skip_through). One thread.
//
// A skipped number is in one of these states:
//
//   unheard  -- first frame of it -->                heard (an operation
//   exists) unheard  -- all members have acknowledged it --> forgotten
//
// Frames of heard numbers belong to their operation, frames of forgotten ones
// are stale.

#include <algorithm>
#include <cstdint>
#include <set>

namespace aikido::engine {

class SkippedCalls {
 public:
  // Number of skipped collectives that are tracked one by one. They are over on
  // all other members, so few frames can still arrive. Older ones count as
  // forgotten.
  static constexpr uint64_t kMaxUnheard = 4096;

  // The member has called `called` collectives, and skips all from there to
  // `through`. `first_dropped`: first result that it drops. `is_known(number)`:
  // an operation of that number exists. Requires: called <= through.
  template <class IsKnown>
  void skip(uint64_t called, uint64_t through, uint64_t first_dropped,
            const IsKnown& is_known) {
    const uint64_t first =
        std::max(called + 1, through - std::min(through, kMaxUnheard) + 1);
    for (uint64_t number = first; number <= through; ++number)
      if (!is_known(number)) unheard_.insert(number);
    // Calls between two skips begin a new range.
    if (through_ == 0 || called != through_) from_ = called + 1;
    dropped_from_ =
        dropped_from_ == 0 ? first_dropped : std::min(dropped_from_, first_dropped);
    through_ = through;
  }

  // Range of the last skip, joined with skips directly before. Empty: from() >
  // through() or through() = 0.
  uint64_t from() const { return from_; }
  uint64_t through() const { return through_; }
  // First dropped result of all skips; 0: none. Up to through() this member
  // does not know the other receivers.
  uint64_t dropped_from() const { return dropped_from_; }
  bool was_dropped(uint64_t seq) const {
    return dropped_from_ > 0 && seq >= dropped_from_ && seq <= through_;
  }

  bool has_unheard() const { return !unheard_.empty(); }
  bool is_unheard(uint64_t seq) const { return unheard_.contains(seq); }
  // The first frame of `seq` has come. Returns true if it was unheard.
  bool on_heard(uint64_t seq) { return unheard_.erase(seq) > 0; }
  // All members have acknowledged the collectives up to `seq`.
  void forget(uint64_t seq) {
    unheard_.erase(unheard_.begin(), unheard_.upper_bound(seq));
  }

 private:
  uint64_t from_ = 0, through_ = 0;
  uint64_t dropped_from_ = 0;
  std::set<uint64_t> unheard_;
};

}  // namespace aikido::engine

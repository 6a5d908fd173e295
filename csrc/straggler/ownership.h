// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Who should own shards (our design). One that waits for its caller or sits behind a
// slow link serves the others badly: who is late kLateRun times in a row gives its
// shards away.
//
// Note [how shards come back]
// One that owns nothing looks late even when it is well: it has g shards to send where
// an owner has g - 1, and its results leave last, so it calls later than the others and
// is skipped again. So it need not be in time to come back: it is enough to have kept
// up, to have called the last operations. After kReturnAfter operations it gets its
// shards for a trial. If that fails it costs as much as the first time, so each wait is
// twice the one before. A trial holds if it lasts as long as the wait did; the next
// wait is the shortest again. Where full sums are all there is, everybody keeps up, and
// it has to be in time for as many of them.
//
// One thread, no clock; time is the number of the last operation.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rank_set.h"
#include "base/types.h"

namespace aikido::straggler {

class Ownership {
 public:
  static constexpr uint32_t kLateRun = 4;
  static constexpr uint32_t kReturnAfter = 16;
  static constexpr uint32_t kMaxDoublings = 8;

  struct Change {
    Rank rank;
    bool owns;
    bool operator==(const Change&) const = default;
  };
  // What is known of a member, the worst (best) of all policies that are in use.
  struct Seen {
    uint32_t skips_in_a_row = 0;
    uint32_t healthy_run = 0;  // operations in a row that it was in, or in time for
    bool is_slow = false;      // it holds up full sums (rebalance.h)
    bool keeps_up = false;     // it has called what was skippable up to a few
  };

  explicit Ownership(int32_t world_size);

  // A view with these owners is in force; the last operation was `now`. Returns what is
  // new about them.
  std::vector<Change> on_owners(const RankSet& owners, Seq now);

  // What `self` should change: only the first owner that is in time changes anything.
  // `seen(rank)` is asked for members only. O(members).
  template <class SeenOf>
  std::vector<Change> changes(Rank self, const RankSet& members, Seq now,
                              SeenOf&& seen) const {
    const bool gains = 2 * (owners_.count() - 1) > members.count();
    Rank first = kNoRank;
    std::vector<Change> changes;
    members.for_each([&](Rank r) {
      const Seen one = seen(r);
      if (!owners_.contains(r)) {
        if (may_return(r, now, one)) changes.push_back({r, true});
      } else if (is_late(r, now, one, gains)) {
        changes.push_back({r, false});
      } else if (first == kNoRank) {
        first = r;
      }
    });
    if (first != self) changes.clear();
    return changes;
  }

 private:
  struct Member {
    Seq since;                  // it owns something, or nothing any more
    uint32_t num_failures = 0;  // how often it was moved soon after it came back
  };
  const Member& member(Rank rank) const {
    return members_[static_cast<size_t>(rank.value)];
  }
  uint64_t held(Rank rank, Seq now) const {
    return now.value - std::min(member(rank).since.value, now.value);
  }
  static uint64_t wait(const Member& m);
  bool is_late(Rank rank, Seq now, const Seen& seen, bool gains) const;
  bool may_return(Rank rank, Seq now, const Seen& seen) const;

  RankSet owners_;
  std::vector<Member> members_;
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Assignment of shards: which members should own shards (our design). A member that
// waits for its caller, or sits behind a slow link, serves the others badly. A member
// that is late kLateRun times in a row gives its shards away. One thread, no clock.
//
// Note [how shards come back]
// A member that is in time kReturnAfter times in a row is healthy. But a healthy member
// that owns nothing may look late too, if operations take as long as their bytes need.
// It has g shards to send while an owner has g - 1. Its results leave last, so it calls
// later than the others and is skipped again.
//   Rule: a member that has only kept up (it has called the last operations) gets its
// shards for a trial. A failed trial costs the others about kTrialCost operations, and
// each operation without the member costs the n-th part of one operation (deadline.h).
// So the member waits until the second cost is kTrialMargin times the first. It waits
// at least kTrialAfter, because a failure needs time to be seen even if operations are
// short. Each wait after a failure is twice the wait before. A trial has succeeded if
// it lasts as long as that wait; the next wait is the shortest again. If there are full
// sums only, every member keeps up, and only contributions in time count.
//   Keeping up needs no uplink: results come down, and late contributions are
// cancelled. The bytes that still arrive show how fast the uplink is: for large
// contributions the rate (uplink.h), for small ones the share at the close
// (contribution_share.h). The wait is a quarter if the uplink suits, twice as long if
// too few bytes arrive to tell, and four times as long if the uplink is too slow. A
// member that was moved only once does not wait at all if another owner is late now and
// too few owners are left.
//
// Note [advice]
// Lags show that a member is late, but not the cause. An observer of the traces of all
// ranks knows more. Shards leave a slow link at once, without a trial as long as the
// advice stands. They stay with a member that only computes for longer, because the
// progress thread serves them without its caller. Full sums are different: there the
// last member to call should own nothing, for each cause.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/types.h"
#include "straggler/deadline.h"
#include "straggler/uplink_estimate.h"

namespace aikido::straggler {

// Cause of a member's lateness in most steps, by the traces of all ranks.
enum class Advice : uint8_t { kNone, kCaller, kLink };

class Ownership {
 public:
  static constexpr uint32_t kLateRun = 4;
  static constexpr uint32_t kReturnAfter = 16;  // operations
  static constexpr uint32_t kTrialCost = 4;     // operations
  static constexpr uint32_t kTrialMargin = 2;
  static constexpr Duration kTrialAfter = std::chrono::seconds(1);
  static constexpr uint32_t kMaxDoublings = 8;

  struct Change {
    Rank rank;
    bool owns;
    bool operator==(const Change&) const = default;
  };
  // Last operation, and present time.
  struct Now {
    Seq seq;
    TimePoint time;
  };
  // Observations of a member: the worst (best) of all policies in use.
  struct Seen {
    uint32_t skips_in_a_row = 0;  // since its present ownership began
    uint32_t healthy_run = 0;     // operations in a row with it, or with it in time
    bool is_slow = false;         // it delays full sums (rebalance.h)
    bool keeps_up = false;        // it has called all skippable operations but a few
    Suits uplink = Suits::kUnknown;
  };

  explicit Ownership(int32_t world_size);

  // Load that the calls of the local member put on owners.
  Demand& demand() { return demand_; }
  const Demand& demand() const { return demand_; }

  // Sets the advice for `rank`, until the next advice.
  void advise(Rank rank, Advice advice) {
    members_[static_cast<size_t>(rank.value)].advice = advice;
  }

  // True if `rank` was moved only once and nothing makes it slow as an owner, with such
  // an uplink. Before its trial it may then stand in for an owner that is late now.
  bool would_serve(Rank rank, Suits uplink) const {
    const Tenure& m = member(rank);
    return m.num_failures <= 1 && m.advice != Advice::kLink && uplink != Suits::kNo;
  }

  // A view with these owners is in force. Returns the differences to the view before.
  std::vector<Change> on_owners(const RankSet& owners, const Now& now);

  // Changes that `self` should make. Only the first owner in time changes anything; if
  // no owner is in time, the first remaining owner does. At least half of the members
  // keep shards, so that the remaining owners can serve all. `seen(rank)` is called for
  // members only. O(members).
  template <class SeenOf>
  std::vector<Change> changes(Rank self, const RankSet& members, const Now& now,
                              SeenOf&& seen) const {
    const bool gains = 2 * (owners_.count() - 1) > members.count();
    int32_t left = owners_.count();
    Rank first = kNoRank, first_late = kNoRank;
    std::vector<Change> changes;
    members.for_each([&](Rank r) {
      const Seen one = seen(r);
      if (!owners_.contains(r)) {
        if (may_return(r, now, one)) changes.push_back({r, true});
      } else if (!is_late(r, one, gains)) {
        if (first == kNoRank) first = r;
      } else if (2 * (left - 1) >= members.count()) {
        --left;
        changes.push_back({r, false});
      } else if (first_late == kNoRank) {
        first_late = r;
      }
    });
    if ((first != kNoRank ? first : first_late) != self) changes.clear();
    return changes;
  }

 private:
  struct Tenure {
    Now since{};  // beginning of its present ownership, or of owning nothing
    uint32_t num_failures = 0;  // moves soon after it came back
    Advice advice = Advice::kNone;
  };
  const Tenure& member(Rank rank) const {
    return members_[static_cast<size_t>(rank.value)];
  }
  uint64_t held(Rank rank, const Now& now) const {
    return now.seq.value - std::min(member(rank).since.seq.value, now.seq.value);
  }
  uint32_t doublings(Rank rank) const;
  uint64_t operations_to_trial() const;
  // True after `quarters` quarters of the wait for a trial.
  bool has_waited(Rank rank, const Now& now, uint32_t quarters = 4) const;
  bool is_late(Rank rank, const Seen& seen, bool gains) const;
  bool may_return(Rank rank, const Now& now, const Seen& seen) const;

  RankSet owners_;
  std::vector<Tenure> members_;
  Demand demand_;
};

}  // namespace aikido::straggler

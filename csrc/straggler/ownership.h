// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Who should own shards (our design). One that waits for its caller or sits behind a
// slow link serves the others badly: who is late kLateRun times in a row gives its
// shards away.
//
// Note [how shards come back]
// Who is in time kReturnAfter times in a row is well. But one that owns nothing looks
// late also when it is well, with operations that are as long as their bytes need: it
// has g shards to send where an owner has g - 1, and its results leave last, so it
// calls later than the others and is skipped again. So one that has only kept up, that
// is called the last operations, gets its shards for a trial. A trial that fails costs
// the others about kTrialCost operations, and each operation that it is not in costs
// the n-th part of one (deadline.h): it waits until that is kTrialMargin as much, and
// at least kTrialAfter, since a failure takes its time to be seen also where operations
// are short. Each wait after a failure is twice the one before. A trial holds if it
// lasts as long as that; the next wait is the shortest again. Where full sums
// are all there is, everybody keeps up, and only being in time counts.
//
// To keep up takes no uplink: results come down, and late contributions are cancelled.
// What still comes of them shows how fast it is: of large ones how fast bytes come
// (uplink.h), of small ones what part is here at the close (contribution_share.h). One
// whose uplink would do waits a quarter of the time, one of which too little comes to
// say twice, and one whose uplink is too slow four times as long. No time at all waits
// one that was moved for once where another owner is late now and too few are left.
//
// Note [advice]
// Lags say that a member is late and not why. Whoever sees the traces of all ranks
// knows more: shards leave a slow link at once, without a trial as long as that is
// said, and stay with a member that only computes for longer, because what serves them
// does not wait for its caller. Full sums are another matter: there the last to call
// should own nothing, whatever makes it late.
//
// One thread, no clock.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/types.h"
#include "straggler/deadline.h"
#include "straggler/uplink.h"

namespace aikido::straggler {

// Why a member is late in most steps, by the traces of all.
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
  // The last operation, and the time.
  struct Now {
    Seq seq;
    TimePoint time;
  };
  // What is known of a member, the worst (best) of all policies that are in use.
  struct Seen {
    uint32_t skips_in_a_row = 0;  // since it came to own what it has
    uint32_t healthy_run = 0;     // operations in a row that it was in, or in time for
    bool is_slow = false;         // it holds up full sums (rebalance.h)
    bool keeps_up = false;        // it has called what was skippable up to a few
    Suits uplink = Suits::kUnknown;
  };

  explicit Ownership(int32_t world_size);

  // What the calls of the local member need of owners.
  Demand& demand() { return demand_; }
  const Demand& demand() const { return demand_; }

  // What is said of `rank`, until something else is said.
  void advise(Rank rank, Advice advice) {
    members_[static_cast<size_t>(rank.value)].advice = advice;
  }

  // It was moved for once, and nothing is known that would make it slow as an owner,
  // with such an uplink: before its trial it may stand in for one that is late now.
  bool would_serve(Rank rank, Suits uplink) const {
    const Member& m = member(rank);
    return m.num_failures <= 1 && m.advice != Advice::kLink && uplink != Suits::kNo;
  }

  // A view with these owners is in force. Returns what is new about them.
  std::vector<Change> on_owners(const RankSet& owners, const Now& now);

  // What `self` should change: only the first owner that is in time changes anything,
  // or where none is the first that stays one. At least half of the members keep
  // shards, so that those who are left can serve all. `seen(rank)` is asked for members
  // only. O(members).
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
  struct Member {
    Now since{};                // it owns something, or nothing any more
    uint32_t num_failures = 0;  // how often it was moved soon after it came back
    Advice advice = Advice::kNone;
  };
  const Member& member(Rank rank) const {
    return members_[static_cast<size_t>(rank.value)];
  }
  uint64_t held(Rank rank, const Now& now) const {
    return now.seq.value - std::min(member(rank).since.seq.value, now.seq.value);
  }
  uint32_t doublings(Rank rank) const;
  uint64_t operations_to_trial() const;
  // So many quarters of the wait for a trial.
  bool has_waited(Rank rank, const Now& now, uint32_t quarters = 4) const;
  bool is_late(Rank rank, const Seen& seen, bool gains) const;
  bool may_return(Rank rank, const Now& now, const Seen& seen) const;

  RankSet owners_;
  std::vector<Member> members_;
  Demand demand_;
};

}  // namespace aikido::straggler

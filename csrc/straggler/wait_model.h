// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Predicts the progress of a waiting rule by replaying recent operations, and chooses
// the rule that would have made most progress (our design). PURE.
//
// Note [progress]
// Progress is contributions per time. An operation of n members, m of them missing,
// counts n - worth m. A rule waits for a late member up to a deadline after the quorum,
// and not at all for members that it drops. WaitAll is the rule with an unlimited
// deadline. Each rule is replayed on the observed delays (recent_operations.h, Note
// [delay vs. late start]):
//   - a member that is waited for starts the next operation with the others;
//   - a member that is not waited for starts the next operation later, by the part of
//     its lag that exceeds the wait. It misses each operation that closes before it has
//     begun it. At its first operation afterwards it is granted one wait (deadline.h,
//     Note [re-entry]).
// So the price of a skip includes its consequences, not one contribution only. The
// delay in an operation that a member did not compute is unknown; its fair delays
// replace it, in turns.
//
// The same rule need not be best for the following operations, the less so the fewer
// operations were seen. Rules are equal if they are within kTie, plus kTieOfFew divided
// by the number of operations, of the best. Among equal rules the rule with the most
// contributions is taken.

#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "straggler/recent_operations.h"

namespace aikido::straggler {

struct WaitRule {
  Duration deadline{0};  // after the quorum, for each member that is not dropped
  RankSet dropped;       // members that get no time
};

struct Predicted {
  double contributions = 0;  // weighted by bytes; a full operation counts its bytes
  Duration time{0};
  double rate() const {
    return contributions / static_cast<double>(std::max<int64_t>(time.count(), 1));
  }
};

class WaitModel {
 public:
  static constexpr double kTie = 0.01, kTieOfFew = 0.5;

  // An operation counts half as much as an operation that is kHalfLife operations
  // younger. Without this the choice follows a slow drift too late, by half of the
  // window.
  static constexpr double kHalfLife = 32;

  // Each deadline of a rule is at least this part of an operation, or the grace:
  // smaller differences between members are chance.
  static constexpr int kLeastPart = 16;

  // A member is dropped, and a deadline is shorter than the grace, only if this many
  // delays of a member exceeded the grace: one long stall is no habit.
  static constexpr int kHabit = 3;

  // `half_life`: see kHalfLife. `grace`: time that a member gets unless it is dropped.
  // `worth`: of a missing contribution, 0 to 1. `fewest`: at least this many members
  // are never dropped. Requires: `recent` is not empty.
  WaitModel(const RecentOperations& recent, Duration grace, double worth, double slack,
            int32_t fewest, double half_life = kHalfLife);

  // Requires: a deadline at least as long as the deadlines of best(), and each dropped
  // member has delays beyond the grace.
  Predicted predict(const WaitRule& rule) const;
  Predicted wait_all() const;
  // The best rule with deadlines up to `ceiling`. Requires: ceiling >= grace.
  WaitRule best(Duration ceiling) const;
  // The lower median of the delays of `rank`.
  Duration typical(Rank rank) const {
    return typical_[static_cast<size_t>(rank.value)];
  }
  const std::vector<PastOperation>& past() const { return past_; }
  // Delay of `rank` in operation `op` of past(), or its estimate if it is unknown.
  Duration delay(size_t op, size_t rank) const { return delays_[op * num() + rank]; }

 private:
  size_t num() const { return static_cast<size_t>(n_); }
  void split_members();
  std::vector<Duration> deadlines(Duration ceiling) const;
  std::vector<RankSet> dropped_sets() const;

  std::vector<PastOperation> past_;
  int32_t n_;
  Duration grace_;
  double worth_, slack_;
  Duration least_{0};
  int32_t fewest_;
  std::vector<double> weights_;           // by operation
  std::vector<Duration> delays_;          // by operation, then rank
  std::vector<Duration> typical_, mean_;  // by rank
  std::vector<int> num_late_;             // known delays beyond the grace, by rank
  Duration shortest_{0};                  // deadline of a rule
  std::vector<size_t> late_;              // members with a delay longer than shortest_
  std::vector<Duration>
      longest_in_time_;  // longest delay of other members, by operation
};

}  // namespace aikido::straggler

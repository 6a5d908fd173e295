// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Predicts the progress of a waiting rule by replaying recent operations, and chooses
// the rule that would have made most progress (our design). PURE.
//
// Note [progress]
// Progress is contributions per time. An operation of n members of which m are missing
// counts n - worth m. A rule waits for a late member up to a deadline after the quorum,
// and not at all for members that it drops. WaitAll is the rule without an end of the
// deadline. Each rule is replayed on the delays that were seen (recent_operations.h,
// Note [delay vs. late start]):
//   - a member that is waited for starts the next operation with the others;
//   - a member that is not waited for starts it as much later as its lag exceeds the
//     wait, and misses each operation that closes before it has begun it. At its first
//     operation afterwards it is granted one wait (deadline.h, Note [re-entry]).
// So the price of a skip is what it leads to, and not one contribution. Of an operation
// that a member did not compute, its fair delays stand for the unknown one, in turns.
//
// The same rule need not be best for the operations that follow, the less so the fewer
// were seen. Rules that are within kTie, and kTieOfFew by the number of operations, of
// the best are equal, and of equal rules that with the most contributions is taken.

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
  double contributions = 0;  // weighed by bytes; of a full operation its bytes
  Duration time{0};
  double rate() const {
    return contributions / static_cast<double>(std::max<int64_t>(time.count(), 1));
  }
};

class WaitModel {
 public:
  static constexpr double kTie = 0.01, kTieOfFew = 0.5;

  // An operation counts half as much as one that is so many operations younger. Without
  // that the choice follows a slow drift by half of the window too late.
  static constexpr double kHalfLife = 32;

  // No deadline of a rule is shorter than such a part of an operation, or the grace: in
  // it members differ by chance.
  static constexpr int kLeastPart = 16;

  // A member is dropped, and a deadline is shorter than the grace, only if so many of
  // the delays of a member were longer than the grace: one long stall is no habit.
  static constexpr int kHabit = 3;

  // `half_life`: see kHalfLife. `grace`: what a member always gets that is not dropped.
  // `worth`: of a missing contribution, 0 to 1. `fewest`: members that are never
  // dropped, at least. Requires: `recent` is not empty.
  WaitModel(const RecentOperations& recent, Duration grace, double worth, double slack,
            int32_t fewest, double half_life = kHalfLife);

  // Requires: a deadline as long as those of best() at least, and no member is dropped
  // without delays beyond the grace.
  Predicted predict(const WaitRule& rule) const;
  Predicted wait_all() const;
  // The best rule with deadlines up to `ceiling`. Requires: ceiling >= grace.
  WaitRule best(Duration ceiling) const;
  // The lower median of the delays of `rank`.
  Duration typical(Rank rank) const {
    return typical_[static_cast<size_t>(rank.value)];
  }
  const std::vector<PastOperation>& past() const { return past_; }
  // Of an operation, with an estimate where it is not known.
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
  std::vector<int> num_late_;             // delays that are known, beyond the grace
  Duration shortest_{0};                  // deadline of a rule
  std::vector<size_t> late_;  // members with a delay that is longer than shortest_
  std::vector<Duration> longest_in_time_;  // delay of the other members, by operation
};

}  // namespace aikido::straggler

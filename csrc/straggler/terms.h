// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Terms of a missing member: how long one shard of one operation may stay open for it.
//   - The shard must stay open if the member was skipped max_consecutive_skips times in
//     a row (kLimiter), or if the log of results kept for it has no room (kLogFull).
//     Exception to kLogFull: a member that is to be excluded from the view gets no
//     time, as long as enough members remain, and up to 1.5 times the log.
//   - The member gets no time if it is known to be behind: it was skipped in an earlier
//     operation that it has not even called. It also gets no time if it let its time
//     pass in another shard of the operation.
//   - Otherwise the member has its own deadline after the quorum (deadline.h). With
//     BackupMode::kNPlusB there is no deadline.
// Pure; the progress thread calls it.

#include "base/rank_set.h"
#include "straggler/deadline.h"
#include "straggler/decision.h"
#include "straggler/history.h"
#include "straggler/policy.h"

namespace aikido::straggler {

// Terms of one missing member, independent of the time: the reason to wait, or the
// reason to close once `deadline` has passed.
struct Terms {
  bool is_open_ended = false;  // only an arrival or the history can end the wait
  Reason reason = Reason::kKnownBehind;
  Duration deadline{0};
  Rank rank = kNoRank;
};

class TermsOf {
 public:
  // For operation `seq` of `bytes` bytes. Members in `had_time` had their time in
  // another shard and get none. History and deadlines must outlive it. Requires:
  // validated options.
  TermsOf(const PolicyOptions& options, const History& history,
          const Deadlines& deadlines, Seq seq, uint64_t bytes, const RankSet& had_time);

  Terms of(Rank rank) const;
  // Terms of the member that keeps the shard open longest, of `expected` minus
  // `arrived`.
  Terms longest(const RankSet& expected, const RankSet& arrived) const {
    return longest(expected, arrived, [](const Terms& t) { return t.deadline; });
  }
  // The same with `time_left(terms)` instead of each deadline.
  template <class TimeLeft>
  Terms longest(const RankSet& expected, const RankSet& arrived,
                TimeLeft&& time_left) const {
    Terms longest;
    expected.for_each([&](Rank rank) {
      if (longest.is_open_ended || arrived.contains(rank)) return;
      Terms t = of(rank);
      if (!t.is_open_ended) t.deadline = time_left(t);
      const bool is_stronger = t.deadline == longest.deadline &&
                               longest.reason == Reason::kKnownBehind &&
                               t.reason != Reason::kKnownBehind;
      if (longest.rank == kNoRank || t.is_open_ended || t.deadline > longest.deadline ||
          is_stronger)
        longest = t;
    });
    return longest;
  }
  // The log has no room for the result of this operation, kept for `rank`.
  bool is_log_full(Rank rank) const;

 private:
  bool is_excluded(Rank rank) const;

  PolicyOptions options_;
  const History& history_;
  const Deadlines& deadlines_;
  Seq seq_;
  uint64_t bytes_;
  RankSet had_time_;
};

}  // namespace aikido::straggler

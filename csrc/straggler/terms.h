// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How long one shard of one operation may be held open for a member that is missing.
// Such a member
//   - must be waited for when it was skipped max_consecutive_skips times in a row
//     (kLimiter), or the log of results kept for it has no room (kLogFull), unless such
//     a member is to be left out of the view: then it gets no time, as long as there
//     are enough members to do so, and up to half as much as the log again;
//   - gets no time when it is known to be behind: skipped in an earlier operation that
//     it has not even called; nor when it has let one pass in another shard already;
//   - else has its own deadline after the quorum (deadline.h); none with
//     BackupMode::kNPlusB.
// Pure; the progress thread calls it.

#include "base/rank_set.h"
#include "straggler/deadline.h"
#include "straggler/decision.h"
#include "straggler/history.h"
#include "straggler/policy.h"

namespace aikido::straggler {

// What a missing member allows, whatever the time is: the reason to wait, or the reason
// to close once `deadline` is over.
struct Terms {
  bool is_open_ended = false;  // only an arrival or the history can end the wait
  Reason reason = Reason::kKnownBehind;
  Duration deadline{0};
  Rank rank = kNoRank;
};

class TermsOf {
 public:
  // Of operation `seq`, which has `bytes` in all. Those who `had_time` in another shard
  // of it get none. History and deadlines must outlive it. Requires: validated options.
  TermsOf(const PolicyOptions& options, const History& history,
          const Deadlines& deadlines, Seq seq, uint64_t bytes, const RankSet& had_time);

  Terms of(Rank rank) const;
  // Of the one of `expected` without `arrived` that holds the shard open longest.
  Terms longest(const RankSet& expected, const RankSet& arrived) const {
    return longest(expected, arrived, [](const Terms& t) { return t.deadline; });
  }
  // The same where one has `time_left(its terms)` instead of its deadline.
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
  // The log has no room for what `rank` would have to be sent later.
  bool is_log_full(Rank rank) const;

 private:
  bool is_left_out(Rank rank) const;

  PolicyOptions options_;
  const History& history_;
  const Deadlines& deadlines_;
  Seq seq_;
  uint64_t bytes_;
  RankSet had_time_;
};

}  // namespace aikido::straggler

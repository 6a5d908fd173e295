// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Skip-straggler for one shard of one operation: closes when all have arrived, or after
// a quorum of K when the time of every missing member is over. Each member that is
// missing after the quorum
//   - must be waited for when it was skipped max_consecutive_skips times in a row
//     (kLimiter), or the log of results kept for it has no room (kLogFull), unless such
//     a member is to be left out of the view: then it gets no time, as long as there
//     are enough members to do so, and up to half as much as the log again;
//   - gets no time when it is known to be behind: skipped in an earlier operation that
//     it has not even called; nor when it has let one pass in another shard already;
//   - else has until t_q + its own deadline (deadline.h).
// Only the progress thread calls it. It feeds the group's history with the quorum and
// with every arrival that it is told of, and looks at it afresh in each answer.

#include "straggler/deadline.h"
#include "straggler/history.h"
#include "straggler/policy.h"

namespace aikido::straggler {

class Skip final : public Policy {
 public:
  // For a shard of operation `seq`; `bytes` is the size of the whole operation. Those
  // who `had_time` in another shard of it get none in this one. The history and the
  // deadlines are those of the group and must outlive it. Requires: validated options.
  Skip(const PolicyOptions& options, History& history, Deadlines& deadlines, Seq seq,
       uint64_t bytes, const RankSet& had_time);

  void expect(const RankSet& members) override { expected_ = members; }
  void on_arrival(Rank rank, TimePoint now) override;
  [[nodiscard]] Decision decide(TimePoint now) const override;
  [[nodiscard]] std::optional<TimePoint> next_look() const override;
  [[nodiscard]] const RankSet& arrived() const override { return arrived_; }
  [[nodiscard]] std::optional<TimePoint> quorum_time() const override { return t_q_; }

 private:
  // What the missing members allow, whatever the time is: the reason to wait, or the
  // reason to close once `deadline` is over.
  struct Terms {
    bool is_open_ended = false;  // only an arrival or the history can end the wait
    Reason reason = Reason::kKnownBehind;
    Duration deadline{0};
    Rank rank = kNoRank;
  };
  Terms terms() const;
  Terms terms_of(Rank rank) const;

  PolicyOptions options_;
  int32_t quorum_;
  History& history_;
  Deadlines& deadlines_;
  Seq seq_;
  uint64_t bytes_;
  RankSet had_time_;
  RankSet expected_;
  RankSet arrived_;
  std::optional<TimePoint> t_q_;
};

}  // namespace aikido::straggler

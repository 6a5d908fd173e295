// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Skip-straggler for one shard of one operation: closes when all have arrived, or after
// a quorum of K when the time of every missing member is over (terms.h).
// Only the progress thread calls it. It feeds the group's history with the quorum and
// with every arrival that it is told of, and looks at it afresh in each answer.

#include "straggler/call_times.h"
#include "straggler/deadline.h"
#include "straggler/history.h"
#include "straggler/policy.h"
#include "straggler/terms.h"

namespace aikido::straggler {

class Skip final : public Policy {
 public:
  // For a shard of operation `seq`; `bytes` is the size of the whole operation. Those
  // who `had_time` in another shard of it get none in this one. The history and the
  // deadlines are those of the group and must outlive it. Requires: validated options.
  Skip(const PolicyOptions& options, History& history, Deadlines& deadlines, Seq seq,
       uint64_t bytes, const RankSet& had_time);

  void expect(const RankSet& members) override { expected_ = members; }
  void on_called(Rank rank, TimePoint now) override { calls_.on_called(rank, now); }
  void on_arrival(Rank rank, TimePoint now) override;
  [[nodiscard]] Decision decide(TimePoint now) const override;
  [[nodiscard]] std::optional<TimePoint> next_look() const override;
  [[nodiscard]] const RankSet& arrived() const override { return arrived_; }
  [[nodiscard]] std::optional<TimePoint> quorum_time() const override { return t_q_; }

 private:
  Terms longest() const;

  int32_t quorum_;
  History& history_;
  TermsOf terms_;
  CallTimes calls_;
  Seq seq_;
  uint64_t bytes_;
  RankSet expected_;
  RankSet arrived_;
  std::optional<TimePoint> t_q_;
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Skip-straggler for one shard of one operation: closes when all have arrived, or after
// a quorum of K when the time of every missing member is over (terms.h).
//
// Note [half of the members]
// Of an even number of members more than half are a quorum, where nobody has said
// otherwise. If as many as are not here are late at once, the others would wait for the
// first of them however late it is; of four members, each late in one step of thirteen,
// in one step of 36. Our design: half of them, but no single one, make a result all the
// same. For the first of the others they wait as long as all that are missing are
// worth, but at least for the time that the contributions which are here have taken, so
// that slow links skip nobody, and slack times as long as a quorum has come later than
// half as a rule: half of the members may be nearer to each other than the rest is.
// They do not wait for one that is late by its call (call_times.h) or known to be
// behind, nor for one that has had its time in another shard.
//   Half are not enough while too little is known of one that is missing, or it must be
// in; nor where half of the members own no shards, who come later than they could
// (ownership.h); nor where all that are missing were skipped in the operation before
// and are back: with fewer bytes to wait for, the first half would stay ahead for ever.
// What is known of lags stays as it is, they count from a quorum only.
//
// Note [a contribution that comes too slowly]
// Of one that is on its way more can be said before its deadline is over (pace.h). If
// it is too slow it is not waited for in the second half of that time, and slack times
// the deadline is what is noted as its lag. Of one of which nothing has come, or for
// which its link has had something else to bring, this says nothing: its caller or its
// machine may be late, and catch up.
//
// Note [lag of a contribution that is cut off]
// At the close, a member that has called may have sent a part of its contribution. The
// rest is cancelled, so the arrival is never seen. Its lag is estimated from the rate
// since its call; of a member of which nothing is here, the time since its call is
// doubled.
//
// Only the progress thread calls it. It feeds the group's history with the quorum and
// with every arrival that it is told of, and looks at it afresh in each answer.

#include "straggler/call_times.h"
#include "straggler/deadline.h"
#include "straggler/history.h"
#include "straggler/pace.h"
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
  void require_quorum() override { needs_quorum_ = true; }
  void on_closed_without(const RankSet& missing) override {
    missing.for_each([&](Rank r) { passed_by_.insert(r); });
  }
  void on_arrival(Rank rank, TimePoint now) override;
  void on_progress(Progress here, uint64_t total, TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> progress_due() const override;
  void on_close(const Progress& here, uint64_t total, TimePoint now) override;
  [[nodiscard]] Decision decide(TimePoint now) const override;
  [[nodiscard]] std::optional<TimePoint> next_look() const override;
  [[nodiscard]] const RankSet& arrived() const override { return arrived_; }
  [[nodiscard]] std::optional<TimePoint> quorum_time() const override { return t_q_; }

 private:
  Duration time_left(Rank rank, Duration deadline, int32_t count, TimePoint time) const;
  Terms longest() const;
  TimePoint estimated_arrival(Rank rank, uint64_t here, uint64_t total,
                              TimePoint now) const;
  std::optional<Terms> half() const;

  int32_t quorum_;
  int32_t fewest_;
  bool needs_quorum_ = false;
  History& history_;
  Deadlines& deadlines_;
  TermsOf terms_;
  CallTimes calls_;
  Seq seq_;
  uint64_t bytes_;
  RankSet expected_;
  RankSet arrived_;
  RankSet passed_by_;  // another shard is closed without them
  double slack_;
  Pace pace_;               // of contributions, since the quorum,
  RankSet too_slow_;        // what it has found,
  Duration found_after_{};  // and how long after the quorum
  std::optional<TimePoint> t_q_;
  std::optional<TimePoint> t_half_;  // when the fewest were here, before t_q
};

}  // namespace aikido::straggler

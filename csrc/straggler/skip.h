// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Policy SkipStraggler for one shard of one operation. It closes when all members have
// arrived. It also closes after a quorum of K when the time of every missing member has
// passed (terms.h). The progress thread is the only caller. The policy feeds the
// group's history with the quorum and with every arrival, and reads it anew for each
// answer.
//
// Note [half of the members]
// With an even number of members and the default quorum, more than half are needed. If
// half of the members are late at once, the others would wait for the first of them,
// however late it is. With four members that are each late in one step of thirteen,
// this happens in one step of 36. Rule (our design): half of the members, but not a
// single one, are enough for a result. They wait for the first of the others
//   - as long as all missing contributions are worth;
//   - at least as long as the contributions that have arrived took, so that slow links
//     skip nobody;
//   - at least slack times the usual time between half and quorum, because half of the
//     members may be nearer to each other than to the rest.
// They do not wait for a member that is late by its call (call_times.h), for a member
// that is known to be behind, nor for a member that had its time in another shard.
//   Half of the members are not enough in three cases:
//   - too little is known of a missing member, or that member must not be skipped;
//   - half of the members own no shards, because such members call later than they
//     could (ownership.h);
//   - all missing members were skipped in the operation before and are back. With fewer
//     bytes to wait for, the first half would otherwise stay ahead for ever.
// Lags are not affected: they count from a quorum only.
//
// Note [a contribution that arrives too slowly]
// The progress of a contribution shows before its deadline whether it will be in time
// (pace.h). If it is too slow, the owner does not wait for it in the second half of the
// deadline, and records slack times the deadline as its lag. A contribution without any
// bytes yet, or behind other bytes of its link, gives no such evidence: its caller or
// its machine may be late and catch up. A sender serves its peers in turns, and between
// two turns nothing arrives. So a contribution that stands still, and would be in time
// at the mean rate since the member's call, is not too slow.
//   If the progress shows that the contribution arrives within slack times the
// deadline, the owner waits that long. At the deadline, the wait so far is lost in
// either case, and the rest of the wait costs less than the contribution is worth. This
// happens in healthy groups: transfers that share a link do not all get the same rate.
//
// Note [nearly here at the end]
// When the wait would end, the owner looks at the progress once more. The wait so far
// is lost in either case, and another operation begins late without the member. So if
// a contribution arrives within slack times the grace (deadline.h) after the quorum, at
// its rate since the last look, the owner waits for it. Without an earlier look the
// mean rate since the member's call counts. This also holds for a member that is late
// by its call, or that has no time left.
//
// Note [lag of a contribution that is cut off]
// At the close, a member that has called may have sent a part of its contribution. The
// rest is cancelled, so its arrival is never seen. The lag is estimated from the rate
// since its call. If no byte has arrived, the time since its call is doubled. If that
// time is longer than the grace, its link stands still: then the time without any byte
// is doubled, over operations in a row (silence.h).

#include "straggler/call_times.h"
#include "straggler/deadline.h"
#include "straggler/history.h"
#include "straggler/nearly_here.h"
#include "straggler/pace.h"
#include "straggler/policy.h"
#include "straggler/terms.h"

namespace aikido::straggler {

class Skip final : public Policy {
 public:
  // For a shard of operation `seq`; `bytes` is the size of the whole operation. Members
  // in `had_time` had their time in another shard and get none in this one. The history
  // and the deadlines belong to the group and must outlive it. Requires: validated
  // options.
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
  struct End {
    TimePoint at;
    Terms terms;  // of the member that is waited for longest
  };
  std::optional<End> end_of_wait() const;
  void look_at_end(const Progress& here, uint64_t total, TimePoint now);
  std::optional<TimePoint> expected_arrival(Rank rank, const Progress& here,
                                            uint64_t total, TimePoint now) const;
  std::optional<TimePoint> at_mean_rate(Rank rank, uint64_t here, uint64_t total,
                                        TimePoint now) const;
  Duration time_left(Rank rank, Duration deadline, int32_t count, TimePoint time) const;
  Terms longest() const;
  struct CutOff {
    TimePoint arrival;  // estimated
    bool is_link;       // deadline.h, Note [slow link]: it shows the rate of the link
  };
  CutOff cut_off(Rank rank, uint64_t here, uint64_t total, TimePoint now);
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
  RankSet passed_by_;  // members without which another shard was closed
  double slack_;
  Pace pace_;  // of contributions, since the quorum
  struct {
    RankSet too_slow;  // contributions that will not be in time
    RankSet coming;    // contributions that will
    Duration after{};  // time from the quorum to the finding
  } found_;            // by pace_
  struct {
    Progress here;
    TimePoint at;
  } last_look_;  // before the end of the wait
  NearlyHere nearly_here_;
  std::optional<TimePoint> t_q_;
  std::optional<TimePoint>
      t_half_;  // arrival of the fewest_ contributions, before t_q_
};

}  // namespace aikido::straggler

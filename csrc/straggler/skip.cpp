// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/skip.h"

namespace aikido::straggler {

Skip::Skip(const PolicyOptions& options, History& history, Deadlines& deadlines,
           Seq seq, uint64_t bytes, const RankSet& had_time)
    : options_(options),
      quorum_(quorum_of(options, history.world_size())),
      history_(history),
      deadlines_(deadlines),
      seq_(seq),
      bytes_(bytes),
      had_time_(had_time),
      expected_(RankSet::full(history.world_size())),
      arrived_(history.world_size()) {}

void Skip::on_arrival(Rank rank, TimePoint now) {
  if (!arrived_.insert(rank)) return;
  if (t_q_ || arrived_.count() < quorum_) {
    history_.on_arrival(seq_, rank, now);
    return;
  }
  t_q_ = now;
  history_.on_quorum(seq_, bytes_, now, arrived_);
}

Decision Skip::decide(TimePoint now) const {
  Decision decision;
  decision.num_arrived = arrived_.count();
  decision.world_size = arrived_.world_size();
  if (arrived_.covers(expected_) && arrived_.count() >= quorum_) {
    decision.verdict = Verdict::kClose;
    decision.reason = Reason::kComplete;
    return decision;
  }
  if (!t_q_) return decision;
  const Terms t = terms();
  decision.reason = t.reason;
  decision.deadline = t.deadline;
  decision.rank = t.rank;
  if (t.is_open_ended || now < *t_q_ + t.deadline) return decision;
  decision.verdict = Verdict::kClose;
  if (t.deadline > Duration::zero()) decision.reason = Reason::kDeadline;
  return decision;
}

std::optional<TimePoint> Skip::next_look() const {
  if (!t_q_ || arrived_.covers(expected_)) return std::nullopt;
  const Terms t = terms();
  if (t.is_open_ended) return std::nullopt;
  return *t_q_ + t.deadline;
}

// The terms of the member that holds the shard open longest.
Skip::Terms Skip::terms() const {
  Terms longest;
  expected_.for_each([&](Rank rank) {
    if (longest.is_open_ended || arrived_.contains(rank)) return;
    const Terms t = terms_of(rank);
    const bool is_stronger = t.deadline == longest.deadline &&
                             longest.reason == Reason::kKnownBehind &&
                             t.reason != Reason::kKnownBehind;
    if (longest.rank == kNoRank || t.is_open_ended || t.deadline > longest.deadline ||
        is_stronger)
      longest = t;
  });
  return longest;
}

Skip::Terms Skip::terms_of(Rank rank) const {
  if (history_.consecutive_skips(rank) >= options_.max_consecutive_skips)
    return {true, Reason::kLimiter, Duration::zero(), rank};
  if (history_.would_overflow(rank, bytes_)) {
    const bool is_left_out =
        can_leave_one(options_, history_.members().count(), history_.world_size()) &&
        !history_.would_overflow_far(rank, bytes_);
    return {!is_left_out, Reason::kLogFull, Duration::zero(), rank};
  }
  if (history_.is_behind(rank, seq_))
    return {false, Reason::kKnownBehind, Duration::zero(), rank};
  if (had_time_.contains(rank))
    return {false, Reason::kDeadline, Duration::zero(), rank};
  const auto [deadline, is_warming_up] = deadlines_.of(rank, bytes_);
  if (is_warming_up) return {false, Reason::kWarmingUp, deadline, rank};
  if (deadline == Duration::zero())
    return {false, Reason::kExpectedLate, deadline, rank};
  return {false, Reason::kWithinDeadline, deadline, rank};
}

}  // namespace aikido::straggler

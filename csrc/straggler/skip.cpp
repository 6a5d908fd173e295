// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/skip.h"

namespace aikido::straggler {

Skip::Skip(const PolicyOptions& options, History& history, Deadlines& deadlines,
           Seq seq, uint64_t bytes, const RankSet& had_time)
    : quorum_(quorum_of(options, history.world_size())),
      history_(history),
      terms_(options, history, deadlines, seq, bytes, had_time),
      calls_(history.world_size(), quorum_),
      seq_(seq),
      bytes_(bytes),
      expected_(RankSet::full(history.world_size())),
      arrived_(history.world_size()) {}

void Skip::on_arrival(Rank rank, TimePoint now) {
  if (!arrived_.insert(rank)) return;
  calls_.on_called(rank, now);
  if (t_q_ || arrived_.count() < quorum_) {
    history_.on_arrival(seq_, rank, now);
    return;
  }
  t_q_ = now;
  history_.on_quorum(seq_, bytes_, now, arrived_);
}

// Requires: the quorum is here.
Terms Skip::longest() const {
  return terms_.longest(expected_, arrived_, [&](const Terms& t) {
    return calls_.time_left(t.rank, t.deadline, *t_q_);
  });
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
  const Terms t = longest();
  decision.reason = t.reason;
  decision.deadline = t.deadline;
  decision.rank = t.rank;
  if (t.is_open_ended || now < *t_q_ + t.deadline) return decision;
  decision.verdict = Verdict::kClose;
  const bool had_time =
      t.reason == Reason::kWithinDeadline || t.reason == Reason::kWarmingUp;
  if (had_time) decision.reason = Reason::kDeadline;
  return decision;
}

std::optional<TimePoint> Skip::next_look() const {
  if (!t_q_ || arrived_.covers(expected_)) return std::nullopt;
  const Terms t = longest();
  if (t.is_open_ended) return std::nullopt;
  return *t_q_ + t.deadline;
}

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/skip.h"

#include <algorithm>
#include <utility>

namespace aikido::straggler {
namespace {

// Shortest deadline during which looking at progress is worth its cost.
constexpr Duration kLeastDeadline = std::chrono::milliseconds(4);

}  // namespace

Skip::Skip(const PolicyOptions& options, History& history, Deadlines& deadlines,
           Seq seq, uint64_t bytes, const RankSet& had_time)
    : quorum_(quorum_of(options, history.world_size())),
      fewest_(fewest_of(options, history.world_size())),
      history_(history),
      deadlines_(deadlines),
      terms_(options, history, deadlines, seq, bytes, had_time),
      calls_(history.world_size()),
      seq_(seq),
      bytes_(bytes),
      expected_(RankSet::full(history.world_size())),
      arrived_(history.world_size()),
      passed_by_(history.world_size()),
      slack_(options.slack),
      pace_(Pace::Of::kContribution, kLeastDeadline),
      found_{RankSet(history.world_size()), RankSet(history.world_size())},
      nearly_here_(history.world_size()) {}

void Skip::on_arrival(Rank rank, TimePoint now) {
  if (!arrived_.insert(rank)) return;
  history_.end_silence(bytes_, rank);
  calls_.on_called(rank, now);
  if (arrived_.count() == fewest_) t_half_ = now;
  if (t_q_ || arrived_.count() < quorum_) {
    history_.on_arrival(seq_, rank, now);
    return;
  }
  t_q_ = now;
  nearly_here_.begin_wait();
  history_.on_quorum(seq_, bytes_, now, arrived_);
  if (fewest_ < quorum_) history_.on_quorum_after_half(bytes_, now - *t_half_);
}

// How long after `time` to wait for the missing contribution of `rank`, at most
// `deadline`. At `time`, `count` contributions had arrived. See Note [late by its call]
// in call_times.h.
Duration Skip::time_left(Rank rank, Duration deadline, int32_t count,
                         TimePoint time) const {
  if (!passed_by_.contains(rank)) return calls_.time_left(rank, deadline, count, time);
  if (!calls_.has_called(rank)) return Duration::zero();
  // Only a part of its contribution can still count.
  deadline = std::min(deadline, deadlines_.grace(bytes_));
  return calls_.time_left(rank, deadline, count, time);
}

// Requires: the quorum has arrived.
Terms Skip::longest() const {
  return terms_.longest(expected_, arrived_, [&](const Terms& t) {
    const Duration left = time_left(t.rank, t.deadline, quorum_, *t_q_);
    if (found_.coming.contains(t.rank) && !passed_by_.contains(t.rank))
      return scaled(left, slack_);
    return found_.too_slow.contains(t.rank) ? std::min(left, found_.after) : left;
  });
}

// Note [a contribution that arrives too slowly]
std::optional<TimePoint> Skip::progress_due() const {
  if (nearly_here_.has_looked()) return std::nullopt;
  const auto end = end_of_wait();
  if (!end) return std::nullopt;
  if (t_q_ && end->terms.reason == Reason::kWithinDeadline) {
    const auto after = pace_.next_look(end->terms.deadline);
    if (after) return *t_q_ + *after;
  }
  return end->at;
}

void Skip::on_progress(Progress here, uint64_t total, TimePoint now) {
  if (const auto end = end_of_wait(); end && now >= end->at) {
    look_at_end(here, total, now);
    return;
  }
  const Duration deadline = longest().deadline, after = now - *t_q_;
  const Duration too_late = scaled(deadline, slack_);
  const auto found = pace_.look(here, total, slack_, deadline, after);
  expected_.for_each([&](Rank r) {
    const auto i = static_cast<size_t>(r.value);
    if (i >= found.size() || arrived_.contains(r)) return;
    if (found[i] == Pace::Finding::kInTime) found_.coming.insert(r);
    if (found[i] != Pace::Finding::kTooSlow) return;
    const uint64_t bytes = here[i].value_or(0);
    const auto arrival = at_mean_rate(r, bytes, total, now);
    const bool stands_still = last_look_.here[i] == bytes;
    if (stands_still && arrival && *arrival <= *t_q_ + too_late) return;
    found_.too_slow.insert(r);
    history_.on_too_slow(seq_, r, too_late);
  });
  found_.after = after;
  last_look_ = {std::move(here), now};
}

// Note [nearly here at the end]
void Skip::look_at_end(const Progress& here, uint64_t total, TimePoint now) {
  nearly_here_.note_look();
  const Duration grace = deadlines_.grace(bytes_);
  const TimePoint longest = (t_q_ ? *t_q_ : *t_half_) + scaled(grace, slack_);
  expected_.for_each([&](Rank r) {
    const auto i = static_cast<size_t>(r.value);
    if (i >= here.size() || arrived_.contains(r)) return;
    const auto arrival = expected_arrival(r, here, total, now);
    if (arrival) nearly_here_.expect(r, *arrival, now, slack_, longest);
  });
}

// Time at which the contribution of `rank` is here, at its rate since the last look, or
// if there was none, since its call. Empty: nothing has arrived since.
std::optional<TimePoint> Skip::expected_arrival(Rank rank, const Progress& here,
                                                uint64_t total, TimePoint now) const {
  const auto i = static_cast<size_t>(rank.value);
  const uint64_t bytes = here[i].value_or(0);
  if (last_look_.here.empty()) return at_mean_rate(rank, bytes, total, now);
  const uint64_t before = last_look_.here[i].value_or(bytes);
  if (bytes <= before) return std::nullopt;
  const auto left = static_cast<double>(std::max(bytes, total) - bytes);
  return now + scaled(now - last_look_.at, left / static_cast<double>(bytes - before));
}

// Time at which the contribution of `rank` is here at the mean rate since its call.
// Empty: nothing has arrived.
std::optional<TimePoint> Skip::at_mean_rate(Rank rank, uint64_t here, uint64_t total,
                                            TimePoint now) const {
  if (here == 0 || !calls_.has_called(rank)) return std::nullopt;
  const TimePoint called = calls_.time_of(rank);
  const auto whole = static_cast<double>(std::max(here, total));
  return called + scaled(now - called, whole / static_cast<double>(here));
}

// Note [lag of a contribution that is cut off]
Skip::CutOff Skip::cut_off(Rank rank, uint64_t here, uint64_t total, TimePoint now) {
  if (const auto arrival = at_mean_rate(rank, here, total, now)) {
    history_.end_silence(bytes_, rank);
    return {*arrival, true};
  }
  const TimePoint called = calls_.time_of(rank);
  const Duration after = now - called;
  const Duration silence = after > deadlines_.grace(bytes_)
                               ? history_.on_silence(seq_, bytes_, rank, after)
                               : after;
  return {called + 2 * silence, silence > 2 * after};
}

void Skip::on_close(const Progress& here, uint64_t total, TimePoint now) {
  const TimePoint t_q = t_q_.value_or(t_half_.value_or(now));
  expected_.for_each([&](Rank r) {
    if (terms_.of(r).reason == Reason::kReEntry)
      deadlines_.on_re_entry(r, seq_, bytes_, arrived_.contains(r));
  });
  history_.on_own_close(seq_, bytes_, arrived_, t_q, now);
  expected_.for_each([&](Rank r) {
    if (arrived_.contains(r) || !calls_.has_called(r)) return;
    const auto i = static_cast<size_t>(r.value);
    const uint64_t bytes = i < here.size() ? here[i].value_or(0) : 0;
    const auto [arrival, is_link] = cut_off(r, bytes, total, now);
    history_.on_too_slow(seq_, r, arrival - t_q);
    if (is_link) deadlines_.on_cut_off(r, seq_, bytes_, arrival - t_q);
  });
  deadlines_.choose(bytes_, now);
}

// Wait of half of the members for another member; nullopt: until that member comes.
std::optional<Terms> Skip::half() const {
  if (t_q_ || !t_half_ || needs_quorum_ || arrived_.covers(expected_))
    return std::nullopt;
  int32_t num_missing = 0;
  expected_.for_each([&](Rank r) { num_missing += arrived_.contains(r) ? 0 : 1; });
  const Duration worth = deadlines_.for_quorum(num_missing, bytes_);
  const Duration took = *t_half_ - calls_.time_of_call(fewest_);
  bool is_enough = true, is_new = false;
  Terms t = terms_.longest(expected_, arrived_, [&](const Terms& one) {
    is_enough &= one.reason != Reason::kWarmingUp;
    is_new |= one.reason == Reason::kKnownBehind ||
              history_.last_skipped(one.rank).value + 1 < seq_.value;
    if (one.reason == Reason::kKnownBehind || one.reason == Reason::kDeadline)
      return Duration::zero();
    const Duration left = time_left(one.rank, worth, fewest_, *t_half_);
    return left == worth ? std::max(worth, took) : left;
  });
  if (t.is_open_ended || !is_enough || !is_new) return std::nullopt;
  t.reason = Reason::kHalf;
  return t;
}

// The end of the wait for the missing members, if no more of them arrive.
std::optional<Skip::End> Skip::end_of_wait() const {
  std::optional<End> end;
  if (const auto of_half = half()) {
    end = {*t_half_ + of_half->deadline, *of_half};
  } else if (t_q_ && !arrived_.covers(expected_)) {
    const Terms t = longest();
    if (!t.is_open_ended) end = {*t_q_ + t.deadline, t};
  }
  if (end) end->at = nearly_here_.extended(end->at, arrived_);
  return end;
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
  const auto end = end_of_wait();
  const bool is_over = end && now >= end->at;
  if (!t_q_ && !is_over) return decision;
  const Terms t = end ? end->terms : longest();
  decision.reason = t.reason;
  decision.deadline = t.deadline;
  decision.rank = t.rank;
  if (!is_over) return decision;
  decision.verdict = Verdict::kClose;
  const bool had_time = t.reason == Reason::kWithinDeadline ||
                        t.reason == Reason::kWarmingUp ||
                        t.reason == Reason::kWaitingPays;
  if (had_time) decision.reason = Reason::kDeadline;
  return decision;
}

std::optional<TimePoint> Skip::next_look() const {
  const auto end = end_of_wait();
  return end ? std::optional(end->at) : std::nullopt;
}

}  // namespace aikido::straggler

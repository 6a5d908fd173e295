// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/active_backup.h"

#include <algorithm>

#include "base/mutation.h"

namespace aikido::straggler {

ActiveBackup::ActiveBackup(const PolicyOptions& options, History& history,
                           Deadlines& deadlines, StandInTimes& times, Seq seq,
                           uint64_t bytes, const RankSet& had_time,
                           size_t max_stand_ins)
    : options_(options),
      num_(num_data_shards(options, history.world_size())),
      quorum_(quorum_of(options, history.world_size())),
      enough_(std::min(quorum_, num_ - options.backups)),
      history_(history),
      times_(times),
      terms_(options, history, deadlines, seq, bytes, had_time),
      seq_(seq),
      bytes_(bytes),
      max_stand_ins_(max_stand_ins),
      arrived_(history.world_size()),
      seen_(history.world_size()),
      backups_(static_cast<size_t>(options.backups)) {
  expect(RankSet::full(history.world_size()));
}

void ActiveBackup::expect(const RankSet& members) {
  expected_ = live_ = RankSet(members.world_size());
  members.for_each([&](Rank r) { (is_backup(r) ? live_ : expected_).insert(r); });
}

// ---- events ----

// Records the own contribution or offer of a member.
void ActiveBackup::see(Rank rank, TimePoint now) {
  if (!begun_at_) begun_at_ = now;
  seen_.insert(rank);
  history_.on_arrival(seq_, rank, now);
  start_clock(now);
}

// Note [when the clock starts]
void ActiveBackup::start_clock(TimePoint now) {
  if (t_q_ || arrived_.count() < enough_) return;
  t_q_ = now;
  history_.on_quorum(seq_, bytes_, now, seen_);
}

// The data shard of `rank` has arrived, from any sender.
void ActiveBackup::count(Rank rank, TimePoint now) {
  if (arrived_.insert(rank)) start_clock(now);
}

void ActiveBackup::on_arrival(Rank rank, TimePoint now) {
  if (seen_.contains(rank)) return;
  see(rank, now);
  count(rank, now);
  // Both copies were waited for, so their order says nothing about lateness.
  if (options_.verify_shadows) return give_way(rank);
  // Its stand-in may fill another hole. Without that there may be no quorum.
  const bool is_free = options_.backup_mode == BackupMode::kSubstitute;
  if (is_free && arrived_.count() < num_) give_way(rank);
}

void ActiveBackup::give_way(Rank primary) {
  const auto one =
      std::find_if(stand_ins_.begin(), stand_ins_.end(),
                   [&](const StandIn& s) { return s.data_shard == primary; });
  if (one == stand_ins_.end()) return;
  backup(one->backup).state = State::kHere;
  stand_ins_.erase(one);
}

void ActiveBackup::on_offer(Rank rank, int32_t data_shard, TimePoint now) {
  Backup& b = backup(rank);
  if (b.state == State::kAsked && !sends_unasked()) b.state = State::kOffered;
  if (b.state != State::kSilent) return;
  b.state = State::kOffered;
  b.data_shard = data_shard;
  b.fits_any = data_shard == kAnyDataShard;
  see(rank, now);
  if (sends_unasked()) ask_one(b, data_shard, now);
}

void ActiveBackup::on_copy(Rank rank, TimePoint now) {
  Backup& b = backup(rank);
  if (b.state == State::kHere || b.state == State::kCounted) return;
  const bool was_asked = b.state == State::kAsked;
  // The owner's own contribution arrives at once, and says nothing about others.
  if (was_asked && now > b.asked_at) times_.on_taken(bytes_, now - b.asked_at);
  b.state = State::kHere;
  if (was_asked && is_missing(b.data_shard)) return stand_in(rank, b.data_shard, now);
  // It was not requested, or the requested data shard has come from its primary.
  if (const auto d = fitting(b, now)) stand_in(rank, *d, now);
}

void ActiveBackup::stand_in(Rank rank, int32_t d, TimePoint now) {
  if (stand_ins_.size() >= max_stand_ins_) return;
  backup(rank).state = State::kCounted;
  const auto place =
      std::find_if(stand_ins_.begin(), stand_ins_.end(),
                   [d](const StandIn& other) { return other.data_shard.value > d; });
  stand_ins_.insert(place, {Rank(d), rank});
  stood_in_at_ = now;
  count(Rank(d), now);
}

void ActiveBackup::on_close(const Progress& /*here*/, uint64_t /*total*/,
                            TimePoint now) {
  history_.on_own_close(seq_, bytes_, seen_, t_q_.value_or(now), now);
  // If the primary came meanwhile, the backup was not given up for being slow.
  for (const Backup& b : backups_)
    if (b.state == State::kAsked &&
        (is_missing(b.data_shard) || options_.verify_shadows))
      times_.on_taken(bytes_, now - b.asked_at);
}

// ---- requests ----

// Time from which the primary of a missing data shard has no time left; nullopt:
// unknown.
std::optional<TimePoint> ActiveBackup::due(int32_t d) const {
  if (!expected_.contains(Rank(d)) || mutated(Mutation::kAskWithoutNeed))
    return TimePoint::min();
  const Terms terms = terms_.of(Rank(d));
  if (terms.is_open_ended || terms.deadline == Duration::zero())
    return TimePoint::min();
  if (!t_q_) return std::nullopt;
  return *t_q_ + terms.deadline;
}

// True if a backup was asked for the data shard and has time left.
bool ActiveBackup::is_pending(int32_t d, TimePoint now) const {
  bool is_pending = false;
  live_.for_each([&](Rank rank) {
    const Backup& b = backup(rank);
    is_pending |=
        b.state == State::kAsked && b.data_shard == d && now < b.asked_at + b.patience;
  });
  return is_pending;
}

size_t ActiveBackup::num_pending() const {
  return static_cast<size_t>(
      std::count_if(backups_.begin(), backups_.end(),
                    [](const Backup& b) { return b.state == State::kAsked; }));
}

// The lowest missing data shard that `b` may fill now.
std::optional<int32_t> ActiveBackup::fitting(const Backup& b, TimePoint now) const {
  for (int32_t d = 0; d < num_; ++d) {
    if ((!b.fits_any && d != b.data_shard) || !is_missing(d)) continue;
    const auto from = due(d);
    if (from && *from <= now && !is_pending(d, now)) return d;
  }
  return std::nullopt;
}

void ActiveBackup::ask_one(Backup& b, int32_t d, TimePoint now) {
  b.state = State::kAsked;
  b.data_shard = d;
  b.asked_at = now;
  b.patience = times_.patience(bytes_, now - *begun_at_);
}

std::vector<Rank> ActiveBackup::ask(TimePoint now) {
  last_ask_ = {now, history_.version()};
  std::vector<Rank> asked;
  if (arrived_.count() == num_) return asked;
  live_.for_each([&](Rank rank) {
    Backup& b = backup(rank);
    if (b.state != State::kOffered && b.state != State::kHere) return;
    if (stand_ins_.size() + num_pending() >= max_stand_ins_) return;
    const auto d = fitting(b, now);
    if (!d) return;
    if (b.state == State::kHere) return stand_in(rank, *d, now);
    ask_one(b, *d, now);
    asked.push_back(rank);
  });
  return asked;
}

// ---- when to close ----

void ActiveBackup::extend(Hold& hold, const Terms& terms) const {
  if (hold.is_open_ended) return;
  const TimePoint until = *t_q_ + terms.deadline;
  const bool is_longer = terms.is_open_ended || until > hold.until;
  if (!is_longer && hold.terms.rank != kNoRank) return;
  hold = {terms.is_open_ended, std::max(hold.until, until), terms};
}

void ActiveBackup::extend(Hold& hold, TimePoint until, Rank rank) const {
  extend(hold, {false, Reason::kWithinDeadline,
                std::max(until - *t_q_, Duration::zero()), rank});
}

void ActiveBackup::hold_for_backups(Hold& hold) const {
  int32_t uncovered = num_ - arrived_.count();
  if (uncovered == 0) return;
  live_.for_each([&](Rank rank) {
    const Backup& b = backup(rank);
    if (b.state != State::kAsked || !is_missing(b.data_shard)) return;
    extend(hold, b.asked_at + b.patience, rank);
    --uncovered;
  });
  if (uncovered <= 0) return;
  live_.for_each([&](Rank rank) {
    if (backup(rank).state != State::kSilent) return;
    const bool is_of_one = options_.backup_mode == BackupMode::kReplicate;
    if (is_of_one && !is_missing(rank.value - num_)) return;
    extend(hold, terms_.of(rank));
  });
}

// With verify_shadows, waits for the copies that have not arrived.
void ActiveBackup::hold_for_copies(Hold& hold) const {
  if (!options_.verify_shadows) return;
  live_.for_each([&](Rank rank) {
    const Backup& b = backup(rank);
    if (b.state == State::kSilent) extend(hold, terms_.of(rank));
    if (b.state == State::kAsked) extend(hold, b.asked_at + b.patience, rank);
  });
  const Duration patience = times_.patience(bytes_, stood_in_at_ - *begun_at_);
  for (const auto& [d, by] : stand_ins_)
    if (expected_.contains(d) && !seen_.contains(d))
      extend(hold, stood_in_at_ + patience, d);
}

// The result of a closed shard is kept for members that have not called.
void ActiveBackup::hold_for_log(Hold& hold) const {
  const auto look = [&](Rank rank) {
    if (!seen_.contains(rank) && terms_.is_log_full(rank))
      extend(hold, {true, Reason::kLogFull, Duration::zero(), rank});
  };
  expected_.for_each(look);
  live_.for_each(look);
}

// Requires: the clock has started.
ActiveBackup::Hold ActiveBackup::hold() const {
  Hold hold;
  hold.until = *t_q_;
  if (!arrived_.covers(expected_)) extend(hold, terms_.longest(expected_, arrived_));
  hold_for_backups(hold);
  hold_for_copies(hold);
  hold_for_log(hold);
  return hold;
}

Decision ActiveBackup::decide(TimePoint now) const {
  Decision decision;
  decision.num_arrived = arrived_.count();
  decision.world_size = num_;
  if (!t_q_ || arrived_.count() < quorum_) return decision;
  const Hold h = hold();
  decision.reason = h.terms.reason;
  decision.deadline = h.terms.deadline;
  decision.rank = h.terms.rank;
  if (h.is_open_ended || now < h.until) return decision;
  decision.verdict = Verdict::kClose;
  if (arrived_.covers(expected_)) {
    decision.reason = Reason::kComplete;
    decision.deadline = Duration::zero();
    decision.rank = kNoRank;
  } else if (decision.deadline > Duration::zero()) {
    decision.reason = Reason::kDeadline;
  }
  return decision;
}

// Other operations may change the times of a member. Then a look may have become due
// without an event of this operation.
std::optional<TimePoint> ActiveBackup::next_look() const {
  std::optional<TimePoint> earliest;
  const bool is_news = history_.version() != last_ask_.version;
  const auto offer = [&](TimePoint at) {
    if (at <= last_ask_.at && !is_news) return;
    at = std::max(at, last_ask_.at);
    if (!earliest || at < *earliest) earliest = at;
  };
  bool may_ask = false;
  live_.for_each([&](Rank rank) {
    const Backup& b = backup(rank);
    if (b.state != State::kOffered && b.state != State::kHere) return;
    for (int32_t d = 0; d < num_; ++d) {
      if ((!b.fits_any && d != b.data_shard) || !is_missing(d)) continue;
      may_ask = true;
      if (const auto from = due(d)) offer(*from);
    }
  });
  // Another backup may then be asked instead.
  for (const Backup& b : backups_)
    if (may_ask && b.state == State::kAsked) offer(b.asked_at + b.patience);
  if (!t_q_) return earliest;
  const Hold h = hold();
  if (!h.is_open_ended) offer(h.until);
  return earliest;
}

}  // namespace aikido::straggler

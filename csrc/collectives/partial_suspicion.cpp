// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// PartialAllreduce about other owners: whose result is missing for too long.
#include <algorithm>

#include "collectives/partial_allreduce.h"

namespace aikido::collectives {

using transport::FrameKind;

namespace {
constexpr int kMaxDoublings = 12;
// For the last result, that it is worth it to look at the pace of.
constexpr Duration kLeastWait = std::chrono::milliseconds(8);
// Of one of whom it cannot be told whether it is what is slow, times all else.
constexpr int kTie = 8;

bool has_idle_members(const membership::View& view) {
  bool has_some = false;
  view.members.for_each([&](Rank r) { has_some |= !view.is_owner(r); });
  return has_some;
}

}  // namespace

void PartialAllreduce::note_progress() {
  ready_at_ = host_->clock().now();
  pace_.emplace(straggler::Pace::Of::kResult, kLeastWait);
  found_ = {};
}

// The result of another owner is here.
void PartialAllreduce::note_lag() {
  if (!is_started() || num_views_ > 0) return;
  int32_t num_missing = 0;  // our own are had when another has acknowledged them
  for (const Shard& mine : shards_)
    if (!mine.is_had && !(mine.own && mine.own->is_closed) && ++num_missing > 1) return;
  group_policy_.owner_watch().on_lag(plan_.num_bytes(0),
                                     host_->clock().now() - ready_at_);
}

// Note [when an owner is suspected]
// A result is missing although all else is here, for longer than is usual and than its
// owner may wait for a late member: those of most owners, ours among them, however many
// parts each of them owns, and the calls of enough members. Half of them are enough for
// one that owns none of them only, or two would suspect each other. So nobody is
// suspected while everything is slow. One whose verdict is here waits for nobody, nor
// does one whose own contribution was too late for most: it is what is slow. What only
// its holder has comes from it or not at all. One for whose contribution another shard
// has waited in vain was late before the clock started: the time begins with that wait.
// None of this holds of one whose caller is late: that says nothing of its link, and
// its own shard waits for that caller, too, and has one more result to send than the
// others. With each view that this operation goes through it takes twice as long: where
// every link is slow, somebody must get the time to finish. Where too few are here to
// tell, or too few owners would be left, and some member owns nothing because it was
// late before, that one is to own shards again: the view that begins so is without
// whoever stands still, and has one more to compare with.
std::optional<TimePoint> PartialAllreduce::suspicion() const {
  if (!is_started() || is_over() || has_failed() || has_suspected_) return std::nullopt;
  if (host_->is_promised() || !host_->view().has(host_->self()) || !has_quorum_)
    return std::nullopt;
  // One that is late itself gets results late, and is no judge of others.
  if (!host_->view().is_owner(host_->self()) || is_late(host_->self()))
    return std::nullopt;
  Duration waited{};
  Rank missing = kNoRank;
  bool are_several = false;
  for (const int32_t s : live_) {
    const Shard& mine = shard(s);
    if (mine.own && !mine.own->is_closed) return std::nullopt;
    waited = std::max(waited, mine.mask.count() > 0 ? mine.deadline : Duration{});
    if (mine.is_had || mine.own) continue;
    are_several |= missing != kNoRank && missing != mine.owner;
    missing = mine.owner;
  }
  if (missing == kNoRank) return std::nullopt;
  const bool can_tell = are_most_here();
  // Full sums wait for everybody, and who owns nothing there is what is slow.
  const bool may_restore =
      !are_several && !call_.policy.rebalance && has_idle_members(host_->view());
  if (!can_tell && !may_restore) return std::nullopt;
  // It may wait for somebody who is in time here, and for how long it has not said; for
  // one that gets no time here too.
  if (!call_.policy.rebalance)
    waited = std::max(waited, group_policy_.grace(call_.bytes()));
  participants_.for_each([&](Rank r) {
    if (r != host_->self())
      waited = std::max(waited, group_policy_.deadline_of(r, seq_, call_.bytes()));
  });
  waited += group_policy_.stand_in_patience(call_.bytes());
  // A single owner has nobody to be compared with.
  const Duration took =
      has_one_owner() ? group_policy_.ceiling() : ready_at_ - local_.called_at;
  // The mask of a long shard may have been sent ahead of the close.
  const bool goes_ahead = plan_.num_bytes(0) > piece_bytes();
  const bool may_wait =
      std::any_of(shards_.begin(), shards_.end(), [&](const Shard& s) {
        const bool is_closed = s.mask.count() > 0 && !(is_full(s) && goes_ahead);
        return !s.is_had && !s.own && !is_closed && !is_late_itself(s.owner);
      });
  // For one of whom nothing is known yet it would be the ceiling.
  waited = may_wait ? std::min(waited, took) : Duration::zero();
  // Much longer than all else, but for the most that is waited for a contribution:
  // where everything has become slow it would help nobody.
  if (!can_tell) {
    const Duration longest = std::max(
        took,
        std::min(group_policy_.ceiling(), kTie * std::max(took, call_.policy.floor)));
    return ready_at_ + longest * (1 << std::min(num_tries_, kMaxDoublings)) + waited;
  }
  // As long as for all else: full sums, of whose result bytes are on their way already,
  // and a new owner, to whom all contributions are sent again.
  const bool is_generous = call_.policy.rebalance || num_views_ > 0;
  Duration patience =
      is_generous ? std::max(took, call_.policy.floor)
                  : group_policy_.owner_watch().deadline(plan_.num_bytes(0), took);
  // The results of the others have gone ahead while contributions still came, so all
  // else is here sooner than what one uplink sends one after the other.
  if (goes_ahead) patience = std::max(patience, took / 2);
  patience = std::min(group_policy_.ceiling(), patience);
  const Duration spared =
      is_partial_ ? std::min(patience, waited_in_vain()) : Duration::zero();
  return ready_at_ + patience * (1 << std::min(num_views_, kMaxDoublings)) + waited -
         spared;
}

// Note [when an owner is suspected]
bool PartialAllreduce::are_most_here() const {
  if (are_too_few_) return false;
  RankSet owners(host_->size()), missing(host_->size());
  for (const int32_t s : live_) {
    const Shard& mine = shard(s);
    owners.insert(mine.owner);
    if (!mine.is_had && !mine.own) missing.insert(mine.owner);
  }
  const int32_t num_here = owners.count() - missing.count();
  const bool is_party = owners.contains(host_->self());
  return has_one_owner() || missing.count() + (is_party ? 1 : 0) <= num_here;
}

bool PartialAllreduce::has_one_owner() const {
  return std::all_of(live_.begin(), live_.end(), [&](int32_t s) {
    return shard(s).owner == shard(live_.front()).owner;
  });
}

// For the contributions of those whose results are missing, in other shards.
Duration PartialAllreduce::waited_in_vain() const {
  Duration shortest = Duration::max();
  for (const Shard& mine : shards_) {
    if (mine.is_had || mine.own) continue;
    if (has_late_caller(mine.owner)) return {};
    Duration longest{};
    for (const Shard& other : shards_)
      if (other.mask.count() > 0 && !is_in_time(other, mine.owner))
        longest = std::max(longest, other.deadline);
    shortest = std::min(shortest, longest);
  }
  return shortest;
}

bool PartialAllreduce::has_late_caller(Rank owner) const {
  return computed_.contains(owner) || host_->called_by(owner) < seq_.value;
}

bool PartialAllreduce::is_late_itself(Rank owner) const {
  if (has_late_caller(owner)) return false;
  int32_t num_in = 0, num_out = 0;
  for (const Shard& other : shards_)
    if (other.mask.count() > 0 && other.owner != owner)
      ++(is_in_time(other, owner) ? num_in : num_out);
  return num_out > num_in;
}

// Of the result that is the only one missing; empty where there are more.
std::optional<int32_t> PartialAllreduce::only_missing() const {
  std::optional<int32_t> missing;
  for (const int32_t s : live_) {
    if (shard(s).is_had || shard(s).own) continue;
    if (missing) return std::nullopt;
    missing = s;
  }
  return missing;
}

// How much of a result is here; nothing: its link brings something else.
std::optional<uint64_t> PartialAllreduce::bytes_here(int32_t s) const {
  const Rank owner = shard(s).owner;
  const auto in_frame = host_->num_received(owner, FrameKind::kResult, seq_.value);
  const bool is_of_it =
      receiving_[static_cast<size_t>(owner.value)] == code_of(FrameKind::kResult, s);
  if (!in_frame || (!is_of_it && *in_frame > 0)) return std::nullopt;
  return shard(s).bytes + *in_frame;
}

// Note [the pace of a result]
// What comes of the only result that is missing may say before the time is over that it
// will not be here (straggler/pace.h): then its owner is suspected after half of it.
// And what will be here slack times the time after all else is waited for so long: to
// move its shard would cost more. So come the results of one that was late to call, and
// those of the slowest where all uplinks have become slow at the same time.
void PartialAllreduce::look_at_result(TimePoint due) {
  const Duration wait = due - ready_at_, after = host_->clock().now() - ready_at_;
  const auto look = pace_->next_look(wait);
  const auto s = only_missing();
  if (!look || after < *look || !s) return;
  const auto found = pace_->look({bytes_here(*s)}, plan_.num_bytes(*s),
                                 call_.policy.slack, wait, after);
  if (!found.empty()) found_ = found.front();
}

TimePoint PartialAllreduce::due_by_pace(TimePoint due) const {
  using enum straggler::Pace::Finding;
  if (found_ == kNothing || !are_most_here()) return due;
  if (found_ == kTooSlow) return ready_at_;
  return ready_at_ + scaled(due - ready_at_, call_.policy.slack);
}

std::optional<TimePoint> PartialAllreduce::next_watch() const {
  const auto due = suspicion();
  if (!due) return due;
  const auto look = pace_->next_look(*due - ready_at_);
  return look && only_missing() ? std::min(*due, ready_at_ + *look) : due_by_pace(*due);
}

void PartialAllreduce::watch() {
  const auto due = suspicion();
  if (!due) return;
  look_at_result(*due);
  if (due_by_pace(*due) > host_->clock().now()) return;
  RankSet missing(host_->size());
  for (const int32_t s : live_)
    if (!shard(s).is_had && !shard(s).own) missing.insert(shard(s).owner);
  if (!are_most_here()) {
    ++num_tries_;
    missing.for_each([&](Rank r) { host_->restore_owners(r); });
    return;
  }
  missing.for_each([&](Rank r) { has_suspected_ |= host_->suspect(r); });
  are_too_few_ = !has_suspected_;
}

}  // namespace aikido::collectives

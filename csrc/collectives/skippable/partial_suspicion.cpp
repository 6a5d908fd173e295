// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/partial_suspicion.h"

#include <algorithm>

namespace aikido::collectives {

using transport::FrameKind;

namespace {
constexpr int kMaxDoublings = 12;
// Shortest wait for the last result that is worth a look at its pace.
constexpr Duration kLeastWait = std::chrono::milliseconds(8);
// If it is unknown which side is slow, the member waits kTie times as long as all else
// has taken.
constexpr int kTie = 8;

bool has_idle_members(const membership::View& view) {
  bool has_some = false;
  view.members.for_each([&](Rank r) { has_some |= !view.is_owner(r); });
  return has_some;
}

}  // namespace

void OwnerSuspicion::on_progress() {
  ready_at_ = host_->clock().now();
  pace_.emplace(straggler::Pace::Of::kResult, kLeastWait);
  found_ = {};
}

void OwnerSuspicion::note_lag() {
  if (!is_started() || shards_.num_views() > 0) return;
  // A closed shard of this member is not missing, although it counts as received only
  // when another member has acknowledged it.
  int32_t num_missing = 0;
  for (const PartialShard& mine : shards_.all())
    if (!mine.is_received && !(mine.own && mine.own->is_closed) && ++num_missing > 1)
      return;
  group_policy_.owner_watch().on_lag(shards_.plan().num_bytes(0),
                                     host_->clock().now() - ready_at_);
}

void OwnerSuspicion::note_close() {
  if (is_started() && shards_.num_views() == 0 &&
      std::all_of(
          shards_.all().begin(), shards_.all().end(),
          [](const PartialShard& other) { return other.is_received || other.own; }))
    group_policy_.owner_watch().on_lag(shards_.plan().num_bytes(0), Duration::zero());
}

void OwnerSuspicion::on_view() {
  state_ = State::kWatching;
  num_tries_ = 0;
}

RankSet OwnerSuspicion::missing_owners() const {
  RankSet missing(host_->size());
  for (const int32_t s : shards_.live())
    if (!shards_.at(s).is_received && !shards_.at(s).own)
      missing.insert(shards_.at(s).owner);
  return missing;
}

// Note [when an owner is suspected]
// The problem: an owner that stands still must lose its shards, but slow links alone
// must not cost anyone its shards.
//   Rule: an owner is suspected if its result is missing while all else is here. "All
// else" means the results of most owners, this member's own among them, and the calls
// of enough members. Half of the owners suffice for a member that owns none of the
// missing shards; otherwise two members would suspect each other. The wait is longer
// than usual, and longer than the owner may itself wait for a late member. So nobody is
// suspected while everything is slow.
//   Some owners wait for nobody, so no such time is added: an owner whose result header
// is here, and an owner whose own contribution was too late for most shards, because
// that owner is slow itself. A result that only its holder has must come from the
// holder.
//   If another shard has waited in vain for the owner's contribution, the owner was
// late before the clock started. So the time begins with that wait. Neither holds for
// an owner with a late caller: the lateness says nothing of its link, its shard waits
// for that caller too, and it has one more result to send.
//   With each view that this operation goes through, the time doubles. If every link is
// slow, some owner must get the time to finish.
//   If too few results are here to tell, or too few owners would remain, a member that
// owns nothing gets shards again. The new view then excludes the member that stands
// still, and has one more member to compare with.
std::optional<TimePoint> OwnerSuspicion::suspicion() const {
  if (!is_started() || is_over() || has_failed() || state_ == State::kSuspected)
    return std::nullopt;
  if (view_host_->is_promised() || !view_host_->view().has(host_->self()) ||
      !called_.has_quorum())
    return std::nullopt;
  // A late member gets its results late, so it cannot judge others.
  if (!view_host_->view().is_owner(host_->self()) || shards_.is_late(host_->self()))
    return std::nullopt;
  Duration waited{};
  Rank missing = kNoRank;
  bool are_several = false;
  for (const int32_t s : shards_.live()) {
    const PartialShard& mine = shards_.at(s);
    if (mine.own && !mine.own->is_closed) return std::nullopt;
    waited = std::max(waited, mine.mask.count() > 0 ? mine.close.deadline : Duration{});
    if (mine.is_received || mine.own) continue;
    are_several |= missing != kNoRank && missing != mine.owner;
    missing = mine.owner;
  }
  if (missing == kNoRank) return std::nullopt;
  const bool can_tell = are_most_here();
  // With full sums all wait for all members, and a member without shards is the slow
  // one.
  const bool may_restore =
      !are_several && !call_.policy.rebalance && has_idle_members(view_host_->view());
  if (!can_tell && !may_restore) return std::nullopt;
  // The owner may wait for a member that is in time here, for a time that it has not
  // announced, or for a member that gets no time here either.
  if (!call_.policy.rebalance)
    waited = std::max(waited, group_policy_.grace(call_.bytes()));
  shards_.participants().for_each([&](Rank r) {
    if (r != host_->self())
      waited = std::max(waited, group_policy_.deadline_of(r, seq_, call_.bytes()));
  });
  // It waits slack times as long for a contribution that is coming (skip.h).
  waited = scaled(waited, call_.policy.slack);
  waited += group_policy_.stand_in_patience(call_.bytes());
  // A single owner cannot be compared with others.
  const Duration took =
      shards_.has_one_owner() ? group_policy_.ceiling() : ready_at_ - local_.called_at;
  // The mask of a long shard may have been sent before the close.
  const bool goes_ahead =
      shards_.plan().num_bytes(0) >
      shards_.piece_bytes(view_host_->view(), host_->settings().chunk_bytes);
  const bool may_wait = std::any_of(
      shards_.all().begin(), shards_.all().end(), [&](const PartialShard& s) {
        const bool is_closed =
            s.mask.count() > 0 && !(shards_.is_full(s) && goes_ahead);
        return !s.is_received && !s.own && !is_closed && !is_late_itself(s.owner);
      });
  // For an owner of which nothing is known, this wait would be the ceiling.
  waited = may_wait ? std::min(waited, took) : Duration::zero();
  // Much longer than all else, up to the longest wait for a contribution. If everything
  // has become slow, a new view would help nobody.
  if (!can_tell) {
    const Duration longest = std::max(
        took,
        std::min(group_policy_.ceiling(), kTie * std::max(took, call_.policy.floor)));
    return ready_at_ + longest * (1 << std::min(num_tries_, kMaxDoublings)) + waited;
  }
  // As long as all else in two cases: full sums (their results are already arriving),
  // and a new owner, which gets all contributions once more.
  const bool is_generous = call_.policy.rebalance || shards_.num_views() > 0;
  Duration patience = is_generous ? std::max(took, call_.policy.floor)
                                  : group_policy_.owner_watch().deadline(
                                        shards_.plan().num_bytes(0), took);
  // The other results were sent ahead while contributions arrived. So all else was
  // complete sooner than one uplink can send its results one after the other.
  if (goes_ahead) patience = std::max(patience, took / 2);
  patience = std::min(group_policy_.ceiling(), patience);
  const Duration spared =
      shards_.is_partial() ? std::min(patience, waited_in_vain()) : Duration::zero();
  return ready_at_ + patience * (1 << std::min(shards_.num_views(), kMaxDoublings)) +
         waited - spared;
}

// See Note [when an owner is suspected].
bool OwnerSuspicion::are_most_here() const {
  if (state_ == State::kTooFew) return false;
  RankSet owners(host_->size()), missing(host_->size());
  for (const int32_t s : shards_.live()) {
    const PartialShard& mine = shards_.at(s);
    owners.insert(mine.owner);
    if (!mine.is_received && !mine.own) missing.insert(mine.owner);
  }
  const int32_t num_here = owners.count() - missing.count();
  const bool is_party = owners.contains(host_->self());
  return shards_.has_one_owner() || missing.count() + (is_party ? 1 : 0) <= num_here;
}

// Shortest time that other shards have waited in vain for the contributions of the
// missing owners.
Duration OwnerSuspicion::waited_in_vain() const {
  Duration shortest = Duration::max();
  for (const PartialShard& mine : shards_.all()) {
    if (mine.is_received || mine.own) continue;
    if (called_.is_late_caller(mine.owner)) return {};
    Duration longest{};
    for (const PartialShard& other : shards_.all())
      if (other.mask.count() > 0 && !shards_.is_in_time(other, mine.owner))
        longest = std::max(longest, other.close.deadline);
    shortest = std::min(shortest, longest);
  }
  return shortest;
}

bool OwnerSuspicion::is_late_itself(Rank owner) const {
  if (called_.is_late_caller(owner)) return false;
  // Late for more shards than in time: this owner is slow itself.
  int32_t num_in = 0, num_out = 0;
  for (const PartialShard& other : shards_.all())
    if (other.mask.count() > 0 && other.owner != owner)
      ++(shards_.is_in_time(other, owner) ? num_in : num_out);
  return num_out > num_in;
}

// Received bytes of a result. Empty: its link is receiving something else.
std::optional<uint64_t> OwnerSuspicion::bytes_here(int32_t s) const {
  const Rank owner = shards_.at(s).owner;
  const auto in_frame = incoming_.num_received(owner, FrameKind::kResult, s);
  if (!in_frame) return std::nullopt;
  return shards_.at(s).bytes + *in_frame;
}

// Note [pace of a result]
// The received bytes of the only missing result may show before the end of the wait
// that it will not arrive (straggler/pace.h). Then its owner is suspected after half of
// the wait. A result that will be complete within slack times the wait is waited for,
// because to move its shard would cost more. This happens for an owner that called
// late, and for the slowest owner if all uplinks have become slow at once.
void OwnerSuspicion::look_at_result(TimePoint due) {
  const Duration wait = due - ready_at_, after = host_->clock().now() - ready_at_;
  const auto look = pace_->next_look(wait);
  const auto s = shards_.only_missing();
  if (!look || after < *look || !s) return;
  const auto found = pace_->look({bytes_here(*s)}, shards_.plan().num_bytes(*s),
                                 call_.policy.slack, wait, after);
  if (!found.empty()) found_ = found.front();
}

TimePoint OwnerSuspicion::due_by_pace(TimePoint due) const {
  using enum straggler::Pace::Finding;
  if (found_ == kNothing || !are_most_here()) return due;
  if (found_ == kTooSlow) return ready_at_;
  return ready_at_ + scaled(due - ready_at_, call_.policy.slack);
}

std::optional<TimePoint> OwnerSuspicion::next_watch() const {
  const auto due = suspicion();
  if (!due) return due;
  const auto look = pace_->next_look(*due - ready_at_);
  return look && shards_.only_missing() ? std::min(*due, ready_at_ + *look)
                                        : due_by_pace(*due);
}

void OwnerSuspicion::watch() {
  const auto due = suspicion();
  if (!due) return;
  look_at_result(*due);
  if (due_by_pace(*due) > host_->clock().now()) return;
  const RankSet missing = missing_owners();
  if (!are_most_here()) {
    ++num_tries_;
    missing.for_each([&](Rank r) { view_host_->restore_owners(r); });
    return;
  }
  bool has_suspected = false;
  missing.for_each([&](Rank r) { has_suspected |= view_host_->suspect(r); });
  state_ = has_suspected ? State::kSuspected : State::kTooFew;
}

}  // namespace aikido::collectives

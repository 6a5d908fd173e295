// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Part of Group for members that take no part in skippable operations: lost members,
// and excluded members that are expected back.

#include <algorithm>
#include <utility>

#include "engine/group.h"

namespace aikido::engine {

using collectives::Operation;

RankSet Group::expected_back() const {
  return absent_.expected_back(view_change_, peers_, clock_->now());
}

// Absent member for which no further result can be kept, beginning with that of
// `operation`. kNoRank: none.
Rank Group::held_back_for(const Operation& operation) const {
  const collectives::Call& call = operation.call();
  const bool may_skip =
      call.is_agreed() && call.policy.kind != straggler::Kind::kWaitAll;
  if (!may_skip || operation.has_failed() || life_.has_ended() ||
      view_change_.is_removed() || call.policy.log_full == straggler::LogFull::kLeave)
    return kNoRank;
  const RankSet away = expected_back();
  if (away.count() == 0) return kNoRank;
  // The absent member will be skipped in the operations in progress, and their results
  // are kept for it.
  uint64_t bytes = keeper_.bytes() + charge_of(operation);
  uint32_t num_under_way = 1;
  for (const auto& [seq, active] : calls_) {
    const auto* other = active.operation->skippable();
    if (Seq(seq) >= operation.seq()) break;
    if (other == nullptr || !other->call().is_agreed() || other->has_failed()) continue;
    bytes += charge_of(*other);
    num_under_way += other->call().policy == call.policy && !other->is_committed();
  }
  Rank found = kNoRank;
  if (bytes > options_.log_bytes) away.for_each([&](Rank r) { found = r; });
  for (const auto& policy : policies_) {
    if (!(policy->options() == call.policy)) continue;
    away.for_each([&](Rank r) {
      const uint64_t skips = policy->history().consecutive_skips(r) + num_under_way;
      if (found == kNoRank && skips > call.policy.max_consecutive_skips) found = r;
    });
  }
  return found;
}

// True if this member has missed as much as a policy allows. The others compute the
// same.
bool Group::is_waited_for() const {
  const uint64_t here = std::max(own_state_.known_up_to(), marks_.called);
  if (view_change_.is_removed() || own_state_.called_elsewhere() <= here) return false;
  uint64_t next_bytes = 0;
  for (auto it = calls_.behind(marks_.called); it != calls_.end(); ++it) {
    const Operation& operation = *it->second.operation;
    if (operation.has_failed()) continue;
    // A strict call waits for every member.
    if (operation.skippable() == nullptr) return true;
    if (operation.skippable()->is_committed()) continue;
    next_bytes = std::max(next_bytes, operation.call().bytes());
  }
  return std::any_of(policies_.begin(), policies_.end(), [&](const auto& policy) {
    const straggler::PolicyOptions& options = policy->options();
    const straggler::History& history = policy->history();
    const bool is_full = options.log_full == straggler::LogFull::kWait &&
                         next_bytes > 0 &&
                         history.log().would_overflow(options_.self, next_bytes);
    return is_full ||
           history.consecutive_skips(options_.self) >= options.max_consecutive_skips;
  });
}

// Starts held calls, in the order of the calls.
void Group::release_held_back() {
  while (marks_.announced < marks_.called) {
    const auto it = calls_.find(marks_.announced + 1);
    const bool is_held = it != calls_.end() && it->second.is_held_back();
    if (is_held && held_back_for(*it->second.operation) != kNoRank) return;
    ++marks_.announced;
    if (is_held) start_held(it->second);
  }
}

// Reason why a skippable operation cannot end any more. Ok: it can.
Status Group::hopeless(const collectives::SkippableOperation& operation) const {
  if (own_state_.refusal())
    return operation.is_started() ? *own_state_.refusal() : Status::ok();
  // Only its caller has not called yet. An excluded member must rejoin before it
  // exposes anything.
  const bool may_expose = !operation.is_started() || !view_change_.is_removed();
  if (operation.has_all() && may_expose) return {};
  Status first_loss;
  RankSet here(options_.size);
  bool is_alone = true;  // all other members of the view are lost
  Rank absent = kNoRank;
  for (int32_t r = 0; r < options_.size; ++r)
    if (absent == kNoRank && !view().takes_part(Rank(r), operation.seq()))
      absent = Rank(r);
  view().members.for_each([&](Rank r) {
    const Peer& p = peers_[r];
    if (p.is_lost() && first_loss.is_ok()) first_loss = p.loss;
    if (!p.is_lost() && r != options_.self) is_alone = false;
    if (!p.is_lost() && view().takes_part(r, operation.seq())) here.insert(r);
  });
  // While a member of the view is lost, that member may have made a result of its
  // contributions.
  const bool is_sure = first_loss.is_ok() && !view_change_.is_promised();
  int32_t live = operation.most_contributions(here);
  if (!is_sure)
    live = std::max(live, straggler::most_contributions(operation.call().policy, here));
  const int32_t needed = straggler::quorum_of(operation.call().policy, options_.size);
  // A member that joined later waits for the result of the others.
  const bool takes_part = view().takes_part(options_.self, operation.seq());
  if (live < needed && takes_part && !operation.is_decided()) {
    Status cause = first_loss;
    if (cause.is_ok() && absent != kNoRank) cause = peers_[absent].loss;
    if (cause.is_ok())
      cause = Status(Code::kPeerLost,
                     concat("rank ", absent.value, " did not answer in time"), absent);
    if (operation.call().policy.kind == straggler::Kind::kWaitAll)
      return cause.with_context(concat("only ", here.count(), " of ", options_.size,
                                       " members are left, and it needs all of them"));
    const bool is_backed_up = operation.call().policy.has_stand_ins();
    return cause.with_context(concat(
        "only ", here.count(), " of ", options_.size, " members are left, ",
        is_backed_up
            ? concat("with ", live, " of ",
                     straggler::num_data_shards(operation.call().policy, options_.size),
                     " data shards, ")
            : "",
        "fewer than min_contributors=", needed));
  }
  if (first_loss.is_ok()) return {};
  if (operation.is_own() && live > view().members.count() / 2)
    return {};  // More than half of the view take part, so the operation will end.
  // An excluded member is taken in by any member of the view, or refused with a reason.
  const bool is_out = view_change_.is_removed();
  if (is_out ? is_alone : !view_change_.has_majority()) {
    return first_loss.with_context(
        concat("only ", here.count(), " of the ", view().members.count(),
               " members that took part are left, not more than "
               "half"));
  }
  return {};
}

}  // namespace aikido::engine

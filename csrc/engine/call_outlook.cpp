// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/call_outlook.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/mutation.h"
#include "base/text.h"
#include "collectives/shard_plan.h"
#include "engine/failures.h"

namespace aikido::engine {

using collectives::Call;
using collectives::Operation;

namespace {
// Skips in a row that make is_cut_off() true.
constexpr uint32_t kOften = 32;
}  // namespace

RankSet CallOutlook::expected_back() const {
  return facts_.absent.expected_back(facts_.view_change, facts_.peers,
                                     facts_.clock.now());
}

Rank CallOutlook::held_back_for(const Operation& operation) const {
  const collectives::Call& call = operation.call();
  const bool may_skip =
      call.is_agreed() && call.policy.kind != straggler::Kind::kWaitAll;
  if (!may_skip || operation.has_failed() || facts_.life.has_ended() ||
      facts_.view_change.is_removed() ||
      call.policy.log_full == straggler::LogFull::kLeave)
    return kNoRank;
  const RankSet away = expected_back();
  if (away.count() == 0) return kNoRank;
  // The absent member will be skipped in the operations in progress, and their results
  // are kept for it.
  uint64_t bytes = facts_.keeper.bytes() + charge_of(operation);
  uint32_t num_under_way = 1;
  for (const auto& [seq, active] : facts_.calls) {
    const auto* other = active.operation->skippable();
    if (Seq(seq) >= operation.seq()) break;
    if (other == nullptr || !other->call().is_agreed() || other->has_failed()) continue;
    bytes += charge_of(*other);
    num_under_way += other->call().policy == call.policy && !other->is_committed();
  }
  Rank found = kNoRank;
  if (bytes > facts_.options.log_bytes) away.for_each([&](Rank r) { found = r; });
  for (const auto& policy : facts_.policies) {
    if (!(policy->options() == call.policy)) continue;
    away.for_each([&](Rank r) {
      const uint64_t skips = policy->history().consecutive_skips(r) + num_under_way;
      if (found == kNoRank && skips > call.policy.max_consecutive_skips) found = r;
    });
  }
  return found;
}

bool CallOutlook::is_waited_for() const {
  const uint64_t here = std::max(facts_.own_state.known_up_to(), facts_.marks.called);
  if (facts_.view_change.is_removed() || facts_.own_state.called_elsewhere() <= here)
    return false;
  uint64_t next_bytes = 0;
  for (auto it = facts_.calls.behind(facts_.marks.called); it != facts_.calls.end();
       ++it) {
    const Operation& operation = *it->second.operation;
    if (operation.has_failed()) continue;
    // A strict call waits for every member.
    if (operation.skippable() == nullptr) return true;
    if (operation.skippable()->is_committed()) continue;
    next_bytes = std::max(next_bytes, operation.call().bytes());
  }
  return std::any_of(
      facts_.policies.begin(), facts_.policies.end(), [&](const auto& policy) {
        const straggler::PolicyOptions& options = policy->options();
        const straggler::History& history = policy->history();
        const bool is_full =
            options.log_full == straggler::LogFull::kWait && next_bytes > 0 &&
            history.log().would_overflow(facts_.options.self, next_bytes);
        return is_full || history.consecutive_skips(facts_.options.self) >=
                              options.max_consecutive_skips;
      });
}

bool CallOutlook::can_spare(Rank rank) const {
  return std::all_of(facts_.calls.begin(), facts_.calls.end(), [&](const auto& entry) {
    const auto* operation = entry.second.operation->skippable();
    if (operation == nullptr || operation->has_failed() || operation->is_decided())
      return true;
    RankSet left(facts_.options.size);
    facts_.view().participants(operation->seq()).for_each([&](Rank r) {
      if (r != rank && !facts_.peers[r].is_lost()) left.insert(r);
    });
    return operation->most_contributions(left) >=
           straggler::quorum_of(operation->call().policy, facts_.options.size);
  });
}

Status CallOutlook::hopeless(const collectives::SkippableOperation& operation) const {
  if (facts_.own_state.refusal())
    return operation.is_started() ? *facts_.own_state.refusal() : Status::ok();
  // Only its caller has not called yet. An excluded member must rejoin before it
  // exposes anything.
  const bool may_expose = !operation.is_started() || !facts_.view_change.is_removed();
  if (operation.has_all() && may_expose) return {};
  Status first_loss;
  RankSet here(facts_.options.size);
  bool is_alone = true;  // all other members of the view are lost
  Rank absent = kNoRank;
  for (int32_t r = 0; r < facts_.options.size; ++r)
    if (absent == kNoRank && !facts_.view().takes_part(Rank(r), operation.seq()))
      absent = Rank(r);
  facts_.view().members.for_each([&](Rank r) {
    const Peer& p = facts_.peers[r];
    if (p.is_lost() && first_loss.is_ok()) first_loss = p.end.loss;
    if (!p.is_lost() && r != facts_.options.self) is_alone = false;
    if (!p.is_lost() && facts_.view().takes_part(r, operation.seq())) here.insert(r);
  });
  // While a member of the view is lost, that member may have made a result of its
  // contributions.
  const bool is_sure = first_loss.is_ok() && !facts_.view_change.is_promised();
  int32_t live = operation.most_contributions(here);
  if (!is_sure)
    live = std::max(live, straggler::most_contributions(operation.call().policy, here));
  const int32_t needed =
      straggler::quorum_of(operation.call().policy, facts_.options.size);
  // A member that joined later waits for the result of the others.
  const bool takes_part =
      facts_.view().takes_part(facts_.options.self, operation.seq());
  if (live < needed && takes_part && !operation.is_decided()) {
    Status cause = first_loss;
    if (cause.is_ok() && absent != kNoRank) cause = facts_.peers[absent].end.loss;
    if (cause.is_ok())
      cause = Status(Code::kPeerLost,
                     concat("rank ", absent.value, " did not answer in time"), absent);
    if (operation.call().policy.kind == straggler::Kind::kWaitAll)
      return cause.with_context(concat("only ", here.count(), " of ",
                                       facts_.options.size,
                                       " members are left, and it needs all of them"));
    const bool is_backed_up = operation.call().policy.has_stand_ins();
    return cause.with_context(concat(
        "only ", here.count(), " of ", facts_.options.size, " members are left, ",
        is_backed_up ? concat("with ", live, " of ",
                              straggler::num_data_shards(operation.call().policy,
                                                         facts_.options.size),
                              " data shards, ")
                     : "",
        "fewer than min_contributors=", needed));
  }
  if (first_loss.is_ok()) return {};
  // The present members take part, and they have a majority.
  if (operation.is_own() && membership::is_majority(facts_.view(), here)) return {};
  // An excluded member is taken in by any member of the view, or refused with a reason.
  const bool is_out = facts_.view_change.is_removed();
  const bool is_voter = facts_.view().votes(facts_.options.self);
  const bool can_end = is_out     ? !is_alone
                       : is_voter ? facts_.view_change.has_majority()
                                  : !is_stranded();
  if (!can_end) {
    return first_loss.with_context(no_majority_text(
        facts_.view(), facts_.view_change.doubts().reachable(facts_.view())));
  }
  return {};
}

// Note [members without a vote]
// A member without a vote may lose its connection to a voter while both run. The voters
// may still have a majority, which it cannot see. Rule: such a member waits as long as
// it reaches a voter. That voter sends it the view that excludes it, or the error of
// the call. If it reaches no voter, the voters exclude it, and go on. So its calls fail
// here only, and it tells the others of no failed call.
bool CallOutlook::is_stranded() const {
  const membership::View& view = facts_.view();
  if (facts_.view_change.is_removed() || view.votes(facts_.options.self)) return false;
  bool reaches_voter = false;
  facts_.view_change.doubts().reachable(view).for_each(
      [&](Rank r) { reaches_voter |= view.votes(r); });
  return !reaches_voter;
}

// Note [cause of a time-out]
// A member that has called may itself only wait for another member. So halfway to the
// deadline each member asks all others if they have called. Its error names those that
// have not. The first time-out is reported to all members.
Status CallOutlook::time_out(const Operation& operation, Duration after) const {
  std::vector<Rank> blamed =
      facts_.peers.not_called(operation.awaited(), operation.seq().value);
  if (blamed.empty()) blamed = operation.suspects();
  std::vector<std::pair<Rank, uint64_t>> missing;
  for (const Rank rank : blamed) {
    missing.emplace_back(rank, facts_.peers[rank].called());
  }
  const Status why = timed_out(operation.seq().value, facts_.options.name,
                               operation.call(), facts_.options.self, after, missing);
  // The missing member may itself wait for a silent member.
  Status cause = facts_.peers.silence();
  const Rank absent = held_back_for(operation);
  if (cause.is_ok() && absent != kNoRank)
    cause = Status(Code::kTimedOut,
                   concat("it was held back for rank ", absent.value,
                          ", which is out of the view and was expected back: it has "
                          "missed as many results as may be, see "
                          "max_consecutive_skips and straggler.log_bytes"),
                   absent);
  if (cause.is_ok()) return why;
  return {why.code(), concat(why.message(), "; ", cause.message()), cause.culprit()};
}

uint64_t CallOutlook::charge_of(const collectives::Operation& operation) const {
  const Call& call = operation.call();
  const collectives::ShardPlan plan(call.count, size_of(call.dtype),
                                    facts_.options.size,
                                    facts_.options.operation.shard_bytes_of(call));
  return call.bytes() + SendWindow::kMessageCharge * uint64_t(plan.num_shards());
}

bool CallOutlook::is_acked(Seq seq, Rank except) const {
  if (facts_.life.has_ended() || facts_.view_change.is_removed() ||
      facts_.marks.acked < seq.value)
    return false;
  if (mutated(Mutation::kUnsettledState)) return true;
  bool is_acked = true;
  facts_.view().members.for_each([&](Rank r) {
    if (r == facts_.options.self || r == except) return;
    if (facts_.peers.acked_by(r) < seq.value) is_acked = false;
  });
  return is_acked;
}

bool CallOutlook::is_cut_off() const {
  return facts_.policies.consecutive_skips(facts_.options.self) >= kOften;
}

}  // namespace aikido::engine

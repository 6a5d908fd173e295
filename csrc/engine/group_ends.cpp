// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Part of Group for the end of calls: completed, failed here or on another member, or
// ended with a lost member or with the group.

#include "engine/group.h"

#include <algorithm>
#include <utility>

#include "engine/failures.h"

namespace aikido::engine {

using collectives::Call;
using collectives::Operation;
using transport::FrameKind;

// Reason why no message can be exchanged with `rank`. kNoRank: with any member.
Status Group::unreachable(Rank rank) const {
  return life_.has_ended() ? life_.reason() : peers_.unreachable(rank);
}

// Others may have reported a loss before the connection ends here.
Status Group::failure() const {
  const Status failure = unreachable(kNoRank);
  return failure.has_failed() ? failure : peers_.last_loss().value_or(failure);
}

// Removes the operation if it is over, and counts it.
void Group::retire(uint64_t seq) {
  const auto it = calls_.find(seq);
  if (it == calls_.end()) return;
  const Operation& current = *it->second.operation;
  const auto* skippable = current.skippable();
  if (skippable != nullptr && !current.is_started() && skippable->is_closed())
    for (Peer& p : peers_) p.early.note_dropped(seq);
  if (!current.is_over()) return;
  trace_.on_over(current);
  if (it->second.operation->has_failed()) {
    services_.counters().failures.fetch_add(1, std::memory_order_relaxed);
    // Frames still in arrival must not touch the caller's memory again.
    peers_.drop_incoming(seq);
  } else {
    if (skippable != nullptr && skippable->was_skipped())
      services_.counters().skipped_own.fetch_add(1, std::memory_order_relaxed);
    // A member that was silent is back.
    const bool is_well = !life_.has_ended() && peers_.is_reachable(kNoRank);
    if (peers_.last_loss() && is_well) peers_.forgive();
  }
  if (it->second.operation->call().is_partial()) {
    services_.counters().set_replayed(policies_.replayed());
  }
  // A failure frees memory on all members. And if all results are here, all
  // contributions were folded, called or not. Both make room in the send window.
  const auto operation = it->second.operation;
  const Call& call = operation->call();
  if (operation->has_failed() || call.is_agreed()) {
    for (Peer& p : peers_)
      p.note_over(seq, !operation->has_failed() || !call.is_partial());
  }
  const bool is_kept = !operation->has_failed() && call.is_agreed();
  if (is_kept && results_.keep(shared_skippable(operation)))
    owners_.on_result(call.policy.rebalance);
  calls_.retire(it);
  update_acked();
  if (is_kept) note_full(operation->call().bytes());
  start_barriers();
}

void Group::fail_everywhere(Seq seq, const Status& why) {
  const auto it = calls_.find(seq.value);
  if (it == calls_.end()) return;
  // Keeps the operation alive while it fails.
  const auto operation = it->second.operation;
  fail(*operation, why, true);
}

void Group::fail(Operation& operation, const Status& why, bool tell) {
  if (operation.has_failed() || operation.is_over()) return;
  const Seq seq = operation.seq();
  if (why.code() == Code::kPeerLost) peers_.note_loss(why);
  if (operation.call().is_partial()) results_.note_failed(seq.value, why);
  // The others go on without an excluded member, so they are not told.
  const bool is_out = operation.call().is_partial() && view_change_.is_removed();
  if (tell && !is_out) peers_.send_abort(seq, why);
  operation.fail(why);
  const auto it = calls_.find(seq.value);
  if (it == calls_.end()) return;
  if (it->second.held) return start_held(it->second);
  if (operation.is_started()) return retire(seq.value);
  peers_.drop_incoming(seq.value);
  for (Peer& p : peers_) p.early.note_dropped(seq.value);
  if (seq.value <= skipped_.through()) {  // nobody will call it
    calls_.erase(seq.value);
    return;
  }
  // Only the reason is kept for the caller, which has not called yet.
  calls_.fail_ahead(seq, why);
  update_acked();
}

void Group::mismatch(Operation& operation, const Call& other, Rank caller) {
  fail(operation,
       engine::mismatch(operation.seq().value, options_.name, operation.call(),
                        operation.first_caller(), other, caller),
       true);
}

// Note [difference found late]
// A call that needs little from others may end well here before another member finds
// that both made different calls. An example is a broadcast of this member that the
// other took for its own. From then on the members' data differ, and no later result
// can be trusted. So the group ends.
//   The notice also goes over the bulk lane. So no member receives a contribution or
// result of a later call from the finder before the notice. A member that has refused
// its own call (Group::refuse) is another case: its caller knows the error, and the
// numbers agree.
void Group::check_past(Rank from, uint64_t seq, std::span<const std::byte> extension) {
  const Call* ours = calls_.recent().find(seq);
  if (extension.empty() || ours == nullptr) return;
  auto theirs = collectives::decode_call(extension);
  if (!theirs || theirs->call == *ours) return;
  const Status why =
      engine::mismatch(seq, options_.name, *ours, options_.self, theirs->call, from);
  abort(found_too_late(why, options_.name));
}

// seq 0 ends the whole group.
void Group::on_abort(Rank from, uint64_t seq, const Status& why) {
  if (seq == 0) {
    const auto told =
        why.with_context(concat("rank ", from.value, " gave the group up"));
    if (told.code() == Code::kPeerLost) peers_[from].end.reason_to_leave = told;
    life_.note({told, peers_[from].texts.spared()});
    return;
  }
  const auto it = calls_.find(seq);
  if (it != calls_.end()) {
    const auto operation = it->second.operation;
    if (operation->call().is_partial() && !view().has(from)) return;
    fail(*operation, why, false);
  } else if (seq > marks_.called) {
    results_.note_failed(seq, why);
    calls_.fail_ahead(Seq(seq), why);
    update_acked();
  } else if (why.code() == Code::kInvalidArgument && why.culprit() != from &&
             calls_.recent().find(seq) != nullptr) {
    // See Note [difference found late].
    abort(found_too_late(why, options_.name));
  }
}

void Group::on_link_lost(Rank from, const Status& why) {
  Peer& p = peers_[from];
  if (p.is_lost()) return;
  end_as_heard();  // all its frames have been read
  peers_.on_lost(from, why);
  if (life_.is_leaving()) return;
  if (!p.end.has_left) trace_.member_events().on_lost(from, p.end.loss);
  const TimePoint now = clock_->now();
  if (!policies_.is_empty() || votes().is_agreeing()) view_change_.on_lost(from, now);
  if (p.end.has_left) peers_.grace().begin(now);
  check_all_lost();
  release_held_back();
  send_seals();
  mailbox_.on_peer_lost(from, p.end.loss);
  if (!p.end.has_left) mailbox_.fail_receives(kNoRank, p.end.loss);
}

void Group::check_all_lost() {
  for (const auto& operation : calls_.operations()) check_lost(*operation);
}

// Note [silence is no loss]
// A silent member may come back. So its connection is kept, and only calls that are
// known to need it end, one at a time. Calls that may skip go on, because being late is
// no failure there. For a call that is not made here yet, the members that wait in it
// decide.
//
// Note [a death ends all strict calls]
// A member that needs the dead member fails, and makes no more calls. A member that
// does not need the dead member would wait for the failed ones, and blame one of them.
// So every strict call ends.
//
// Note [leaving after a failed call]
// If a third member has failed a call, its participants may leave at once. Their
// leaving may be seen here before the reason of the third member, which may have been
// stopped between two notices. But callers must get that reason. So calls end for lack
// of members only a while after an orderly leave, or at their deadline.
void Group::check_lost(Operation& operation) {
  if (operation.has_failed() || operation.is_over()) return;
  const bool is_partial = operation.skippable() != nullptr;
  const bool is_too_early = peers_.grace().is_running(clock_->now());
  if (is_too_early && (is_partial || peers_.death().is_ok())) return;
  if (is_partial)
    return end_by_loss(operation, outlook_.hopeless(*operation.skippable()));
  if (!peers_.is_anybody_lost() && !peers_.heartbeats().is_anybody_silent()) return;
  const bool may_wait = !operation.is_started();
  if (!may_wait) end_by_loss(operation, peers_.death());
  for (const Rank rank : operation.missing())
    end_by_loss(operation, may_wait ? peers_[rank].end.loss : peers_.loss(rank));
}

// The deadline has passed, so there is no time to wait for the reason of a leave.
void Group::end_by_time(Operation& operation, TimePoint now) {
  const auto grace = peers_.grace().pause();
  check_lost(operation);
  peers_.grace().resume(grace);
  if (operation.has_failed()) return;
  services_.counters().timed_out.fetch_add(1, std::memory_order_relaxed);
  fail(operation, outlook_.time_out(operation, now - operation.called_at()), true);
}

void Group::end_by_loss(Operation& operation, const Status& loss) {
  if (loss.is_ok()) return;
  const uint64_t seq = operation.seq().value;
  const auto text =
      concat(describe(operation.call()), ", collective ", seq, ", cannot end");
  // See Note [members without a vote] in call_outlook.cpp.
  const bool is_here_only = operation.call().is_partial() && outlook_.is_stranded();
  fail(operation, loss.with_context(text), !is_here_only);
}

void Group::abort(const Status& why) {
  end_group(why, 0);
}

// Note [giving a group up]
// A member may give the group up right after a call, for example to go on with other
// members. There is no order between lanes or between members. So when a notice of this
// arrives, data that the receiver needs for that call may be unread, or in transit from
// a third member. Rule: the notice takes effect at the group's next look, after all
// data that arrived before (transport/loop/event_loop.h, Note [timed work]). Calls that
// are over for the member that gives up do not fail, because they can end without it.
// The notice says which calls these are. If such a call fails later after all, because
// another member does not count it as over, a further notice reports that.
//
// Note [leaving after a loss]
// A member that leaves after another member was lost announces the loss. Otherwise the
// leaving member would be blamed. Skippable calls have gone on without the lost member,
// and also go on without the leaving member: its work may be done. So the group
// stays, and only strict calls end, now and when the loss is seen here.
void Group::end_as_heard() {
  for (const auto& [why, spared] : life_.take_notices()) end_group(why, spared);
}

void Group::end_group(const Status& why, uint64_t spared) {
  const bool goes_on = !policies_.is_empty() && why.code() == Code::kPeerLost;
  const bool is_first = !goes_on && life_.end(why);
  std::vector<std::shared_ptr<Operation>> ending;
  uint64_t told = marks_.called;
  for (const auto& operation : calls_.operations()) {
    const uint64_t seq = operation->seq().value;
    const bool is_strict = !operation->call().is_partial();
    if (is_strict && operation->is_started() && seq <= spared) continue;
    if (!is_strict && goes_on) continue;
    ending.push_back(operation);
    told = std::min(told, seq - 1);
  }
  if (is_first) peers_.send_abort(Seq(0), why, told);
  for (const auto& operation : ending) fail(*operation, why, !is_first);
  if (is_first) mailbox_.fail_all(why);
}

void Group::fail_operations(const Status& why) {
  for (const auto& operation : calls_.operations()) fail(*operation, why, false);
}

void Group::leave() {
  if (!life_.begin_leaving()) return;
  end_as_heard();
  // Members that do not know the reason yet would blame this member.
  const auto& loss = peers_.reason_to_leave();
  if (!life_.has_ended() && loss) peers_.send_abort(Seq(0), *loss);
  if (!life_.has_ended())
    life_.end(
        Status(Code::kAborted, concat("group \"", options_.name, "\" is shut down")));
  fail_operations(life_.reason());
  for (Peer& p : peers_) p.finish();
}

bool Group::is_drained() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& p) { return p.is_drained(); });
}

// Note [leaving members are not missed]
// A member may still need a result from a third member, or from another view, to which
// more than half must agree. If all members that are done left at once, the last member
// might be left alone. So a member stays until the others need no result of its calls,
// and asks them to confirm that at once. A silent member may never confirm.
void Group::ask_acked() {
  if (marks_.last_partial == 0) return;
  for (Peer& p : peers_) p.ask_acked(marks_.last_partial);
}

// Wake policy for data of this peer. Skippable calls are served by members that have
// not called. So in groups with policies only the numbers of calls can wait
// (Peer::tell_called). A trace records arrival times, so nothing waits while it runs.
// If exactly one strict call is open, it may be known which member's bytes are needed
// first.
transport::WakePolicy Group::wake_policy(Rank from) const {
  using enum transport::WakePolicy;
  if (life_.has_ended() || life_.is_leaving() || trace_.is_armed() ||
      mailbox_.has_receives() || mailbox_.is_busy())
    return kNow;
  const collectives::Operation* only = nullptr;
  for (const auto& [seq, active] : calls_) {
    if (!active.is_open()) continue;
    if (!policies_.is_empty()) {
      if (!active.operation->call().is_partial()) return kNow;
      continue;
    }
    if (only != nullptr || !active.operation->is_started()) return kNow;
    only = active.operation.get();
  }
  if (only == nullptr) return kNews;
  const Rank first = only->first_awaited();
  return first == kNoRank || first == from ? kNow : kLater;
}

void Group::tell_called() {
  if (policies_.is_empty() || life_.has_ended()) return;
  for (int32_t r = 0; r < options_.size; ++r) {
    Peer& p = peers_[Rank(r)];
    if (!p.lacks_report()) continue;
    const bool may_wait = may_report_late(Rank(r));
    p.tell_called(may_wait ? CallReport::kLongestWait : Duration::zero());
  }
}

// An owner must know whether a member has called, because it decides how long to wait.
// A member that catches up calls operations that are over: the owners of the next
// operation must know that it is back. A trace records arrival times.
bool Group::may_report_late(Rank to) const {
  if (trace_.is_armed()) return false;
  bool is_one_open = false;
  for (const auto& [seq, active] : calls_) {
    const auto* skippable = active.operation->skippable();
    if (skippable == nullptr || !active.is_open()) continue;
    if (skippable->is_owner(to)) return false;
    is_one_open |= active.operation->is_started();
  }
  return is_one_open;
}

bool Group::is_busy() const {
  bool is_missed = false;
  if (!life_.has_ended() && view().has(options_.self)) {
    const auto look = [&](Rank r) {
      is_missed |= peers_.loss(r).is_ok() && peers_.acked_by(r) < marks_.last_partial;
    };
    view().members.for_each(look);
    // A member that is excluded for a full log may never get the results it lacks.
    if (!policies_.may_leave()) outlook_.expected_back().for_each(look);
  }
  return is_missed || mailbox_.is_busy() || calls_.has_open();
}

void Group::close_links() {
  life_.begin_leaving();
  for (Peer& p : peers_) p.close();
  if (!life_.has_ended())
    life_.end(
        Status(Code::kAborted, concat("group \"", options_.name, "\" is shut down")));
  fail_operations(life_.reason());
  mailbox_.fail_all(life_.reason());
}

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Part of Group for its view (membership/view_change.h): messages, reports, and results
// that are kept for others.

#include <algorithm>
#include <limits>
#include <utility>

#include "base/mutation.h"
#include "collectives/shard_plan.h"
#include "engine/group.h"

namespace aikido::engine {

using collectives::Call;
using membership::Report;
using membership::View;
using membership::ViewMessage;
using membership::ViewStep;
using transport::FrameHeader;
using transport::FrameKind;

namespace {

bool is_before(const membership::ReceivedShard& a, const membership::ReceivedShard& b) {
  return std::pair(a.seq, a.shard) < std::pair(b.seq, b.shard);
}

}  // namespace

// ---- messages ----

void Group::send_view(Rank to, const ViewMessage& message) {
  peers_[to].send_view(message.step, encode(message));
}

void Group::on_view_frame(Rank from, const FrameHeader& header) {
  const auto bytes = peers_[from].read_view(header);
  if (!bytes || life_.is_leaving() || life_.has_ended()) return;
  auto message = membership::decode_view_message(*bytes, options_.size);
  if (!message) return peers_[from].give_up(message.status());
  const Status taken = view_change_.on_message(from, *message, clock_->now());
  if (taken.has_failed()) peers_[from].give_up(taken);
  release_held_back();  // perhaps the absent member was refused
}

void Group::on_notice(Rank from, const FrameHeader& header) {
  if (header.kind == FrameKind::kAskPresent) {
    const bool is_now = header.view == view().number && !view_change_.is_promised();
    if (is_now && view().has(options_.self))
      peers_[from].send_notice(FrameKind::kPresent, header.seq, header.shard,
                               header.view);
    return;
  }
  const auto it = calls_.find(header.seq);
  if (it == calls_.end() || it->second.operation->has_failed()) return;
  const auto operation = it->second.operation;
  if (auto* skippable = operation->skippable()) skippable->on_notice(from, header);
  retire(header.seq);
  update_known();
}

// While no operation could skip, departed members did not matter to the view.
void Group::on_first_policy() {
  for (int32_t r = 0; r < options_.size; ++r)
    if (peers_[Rank(r)].is_lost()) view_change_.on_lost(Rank(r), clock_->now());
}

// ---- changes ----

void Group::note_calls(Report& report) const {
  report.known = std::max(report.known, Seq(marks_.announced));
  for (const auto& [seq, active] : calls_) {
    // A rejoining member takes part in operations that no member knows yet.
    if (seq > marks_.announced && active.is_held_back()) continue;
    if (active.operation->skippable() == nullptr) continue;
    const collectives::SkippableOperation& operation = *active.operation->skippable();
    const Call& call = operation.call();
    report.known = std::max(report.known, operation.seq());
    if (operation.has_failed() || operation.is_committed()) continue;
    // A member that joined later has no block in it and makes no result. It only waits
    // for the result.
    const bool takes_part = view().takes_part(options_.self, operation.seq());
    if (!takes_part && !call.is_agreed()) continue;
    report.needed = std::max(report.needed,
                             straggler::members_of_quorum(call.policy, options_.size));
    if (takes_part && operation.is_decided()) continue;
    if (report.open == Seq()) report.open = operation.seq();
  }
}

Report Group::report() const {
  Report report;
  report.acked = Seq(marks_.acked);
  note_calls(report);
  report.kept = Seq(marks_.acked + 1);
  if (!keeper_.results().empty())
    report.kept = std::min(report.kept, Seq(keeper_.results().begin()->first));
  // A strict operation in progress does not count, because operations behind it may be
  // forgotten.
  report.kept = std::min(report.kept, calls_.first_agreed());
  if (skipped_.through() > 0)
    report.kept = std::max(report.kept, Seq(skipped_.through() + 1));
  if (skipped_.from() <= skipped_.through()) {
    report.skipped_from = Seq(skipped_.from());
    report.skipped_through = Seq(skipped_.through());
  }
  for (const auto& [seq, why] : keeper_.failures()) report.failed.push_back(seq);
  report.lost = RankSet(options_.size);
  for (int32_t r = 0; r < options_.size; ++r)
    if (peers_[Rank(r)].is_lost()) report.lost.insert(Rank(r));
  // An excluded member reports all its results, because the others may have different
  // ones. A member of the view reports from its last complete operation on, which
  // others lack most often.
  report.received = received_from(view_change_.is_removed() ? 1 : marks_.acked);
  for (const auto& [seq, active] : calls_)
    if (const auto* skippable = active.operation->skippable();
        skippable != nullptr && !skippable->has_failed())
      skippable->report_closed(report.closed);
  std::sort(report.closed.begin(), report.closed.end(), is_before);
  const auto note_divided = [&](Seq seq,
                                const collectives::SkippableOperation& operation) {
    if (seq.value <= marks_.acked)
      for (const int32_t shard : operation.divided())
        report.divided.emplace_back(seq, shard);
  };
  for (const auto& [seq, kept] : keeper_.results())
    note_divided(Seq(seq), *kept.operation);
  for (const auto& [seq, active] : calls_)
    if (const auto* skippable = active.operation->skippable())
      note_divided(Seq(seq), *skippable);
  std::sort(report.divided.begin(), report.divided.end());
  return report;
}

std::vector<Seq> Group::withheld() const {
  std::vector<Seq> withheld;
  for (const auto& [seq, active] : calls_) {
    const auto* skippable = active.operation->skippable();
    if (skippable != nullptr && !skippable->has_failed() && skippable->is_withheld())
      withheld.push_back(Seq(seq));
  }
  return withheld;
}

// True if enough other members have called the open operations, enough remain for the
// next one, and the results for an absent member fit into the log.
bool Group::can_do_without(Rank rank) const {
  if (keeper_.bytes() > options_.log_bytes / 2) return false;
  // A member that has joined since takes no part in operations that others have called
  // already.
  uint64_t next = marks_.acked + 1;
  while (calls_.contains(next)) ++next;
  bool is_called = false;
  view().members.for_each([&](Rank r) { is_called |= peers_.called_by(r) >= next; });
  RankSet others = is_called ? view().participants(Seq(next)) : view().members;
  others.erase(rank);
  if (!policies_.would_suffice(others)) return false;
  return std::all_of(calls_.begin(), calls_.end(), [&](const auto& entry) {
    const auto* skippable = entry.second.operation->skippable();
    if (skippable == nullptr || skippable->has_failed()) return true;
    const collectives::SkippableOperation& operation = *skippable;
    RankSet called(options_.size);
    view().participants(operation.seq()).for_each([&](Rank r) {
      // A member that waits in a call makes the next call when the first is over.
      const uint64_t its = peers_.called_by(r);
      const bool waits = its + 1 == operation.seq().value && peers_.acked_by(r) < its;
      if (r != rank && (its >= operation.seq().value || waits)) called.insert(r);
    });
    return operation.is_decided() ||
           operation.most_contributions(called) >=
               straggler::quorum_of(operation.call().policy, options_.size);
  });
}

// Received results of the operations from `seq` on.
std::vector<membership::ReceivedShard> Group::received_from(uint64_t seq) const {
  std::vector<membership::ReceivedShard> received;
  const auto& results = keeper_.results();
  for (auto it = results.lower_bound(seq); it != results.end(); ++it)
    it->second.operation->report(received);
  for (auto it = calls_.from(seq); it != calls_.end(); ++it) {
    const auto* skippable = it->second.operation->skippable();
    if (skippable != nullptr && !skippable->has_failed()) skippable->report(received);
  }
  std::sort(received.begin(), received.end(), is_before);
  return received;
}

void Group::on_promise() {
  for (const auto& operation : calls_.operations())
    if (auto* skippable = operation->skippable();
        skippable != nullptr && !operation->has_failed())
      skippable->on_promise();
}

void Group::on_install(const View& view) {
  trace_.on_view(view);
  policies_.set_members(view.members);
  owners_.on_view(view);
  absent_.on_view(view, received_by_all(), clock_->now()).for_each([&](Rank back) {
    policies_.forget_skips(back);
  });
  if (view.has(options_.self)) own_state_.forgive();
  const auto results = keeper_.results();
  for (const auto& [seq, kept] : results) kept.operation->on_view();
  for (const auto& [seq, operation] : calls_.sending()) operation->on_view();
  for (const auto& operation : calls_.operations()) {
    auto* skippable = operation->skippable();
    if (operation->has_failed() || skippable == nullptr) continue;
    const uint64_t seq = operation->seq().value;
    if (!operation->is_started())
      for (Peer& p : peers_) p.forget_results(seq);
    skippable->on_view();
    retire(seq);
  }
  tell_failed();
  check_all_lost();
  update_known();
  trim_kept();
  stay_excluded_if_full();
  own_state_.publish(view_change_.is_removed());
  release_held_back();
  send_seals();
}

// Highest operation up to which all members have everything: it is not kept here, not
// in progress and not failed here.
uint64_t Group::received_by_all() const {
  return keeper_.released_up_to(
      std::min(marks_.acked, calls_.first_agreed().value - 1));
}

// Checks a returning member. It must not have exposed a result that differs from the
// results here.
std::optional<Status> Group::compare(Rank rank, const Report& report) const {
  const auto out = [&](const std::string& why, bool is_cut = false) {
    return Status(
        Code::kPeerLost,
        concat("rank ", rank.value, " was left out of group \"", options_.name,
               "\" while it was late, and cannot return: ", why, way_back(is_cut)),
        rank);
  };
  for (int32_t r = 0; r < options_.size; ++r) {
    if (view().has(Rank(r)) && report.lost.contains(Rank(r)))
      return out(concat("its connection to rank ", r, " is broken"), true);
  }
  const uint64_t forgotten = keeper_.forgotten();
  if (report.acked.value < forgotten ||
      (!report.received.empty() && report.received.front().seq.value <= forgotten &&
       forgotten > absent_.return_floor(rank))) {
    return out(concat("the results from operation ", report.acked.value + 1, " to ",
                      forgotten, " are not kept any more"));
  }
  // Operations that this member has skipped are neither known nor kept here.
  const bool lacks_skipped = report.acked.value < skipped_.through();
  if (!lacks_skipped && is_too_much(report))
    return out("the results that it lacks fill half of the log");
  const uint64_t floor = absent_.return_floor(rank);
  // For dropped results this member cannot tell if all had the result, and which.
  const uint64_t dropped_from = skipped_.dropped_from();
  const auto ours =
      received_from(dropped_from > 0 ? std::min(dropped_from, floor + 1) : floor + 1);
  for (const auto& theirs : report.received) {
    // All members had it, so it is the same.
    if (theirs.seq.value <= floor && !skipped_.was_dropped(theirs.seq.value)) continue;
    const auto it = std::lower_bound(ours.begin(), ours.end(), theirs, is_before);
    const bool is_here =
        it != ours.end() && it->seq == theirs.seq && it->shard == theirs.shard;
    // This member will never know it.
    if (!is_here && (theirs.seq.value <= skipped_.through() ||
                     keeper_.failures().contains(theirs.seq)))
      return Status(Code::kRetryLater, "");
    // Not received here yet.
    if (!is_here && theirs.seq.value > marks_.acked) return std::nullopt;
    if (!is_here || it->mask != theirs.mask) {
      return out(concat("it has seen another result of operation ", theirs.seq.value,
                        " than the others"));
    }
  }
  // A member that has those results must compare.
  if (lacks_skipped) return std::nullopt;
  return Status::ok();
}

void Group::on_refused(const Status& why) {
  own_state_.refuse(why);
  own_state_.publish(view_change_.is_removed());
  check_all_lost();
}

// ---- results for others ----

int32_t Group::acked() const {
  const auto ahead =
      static_cast<int64_t>(marks_.acked) - static_cast<int64_t>(marks_.announced);
  return static_cast<int32_t>(std::clamp<int64_t>(
      ahead, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

void Group::update_acked() {
  // Calls that fail because of a refusal have no results.
  if (own_state_.refusal()) return;
  const uint64_t before = marks_.acked;
  for (;; ++marks_.acked) {
    const auto it = calls_.find(marks_.acked + 1);
    if (it == calls_.end()) {
      if (marks_.acked >= marks_.called) break;
      continue;
    }
    const auto* next = it->second.operation->skippable();
    if (next != nullptr && !next->is_committed() && !next->has_failed()) break;
  }
  if (marks_.acked == before) return;
  trim_kept();
  for (Peer& p : peers_) p.answer();
  send_seals();
}

void Group::note_acked(Rank from, uint64_t acked) {
  const uint64_t before = peers_[from].acked();
  if (!peers_[from].note_acked(acked)) return;
  // Messages on their way to this member are not needed any more. Strict calls have
  // none.
  std::vector<std::shared_ptr<collectives::SkippableOperation>> over;
  const auto& results = keeper_.results();
  for (auto it = results.upper_bound(before); it != results.end() && it->first <= acked;
       ++it)
    over.push_back(it->second.operation);
  for (auto it = calls_.behind(before); it != calls_.end() && it->first <= acked;
       ++it) {
    const auto& operation = it->second.operation;
    if (operation->skippable() != nullptr && !operation->has_failed())
      over.push_back(shared_skippable(operation));
  }
  for (const auto& operation : over) {
    operation->on_acked(from);
    retire(operation->seq().value);
  }
  trim_kept();
  update_known();
  send_seals();
}

// A failed operation counts as acknowledged, but has no result. A member that has not
// called it does not know if it may skip.
void Group::note_failed(uint64_t seq, const Status& why) {
  if (!own_state_.refusal() && !life_.has_ended()) keeper_.note_failed(seq, why);
}

// Note [an error reaches all members]
// If a call fails, all members get the error, except those without a connection. Such a
// member would wait for a result that no member makes, and in the end the others would
// wait for its next call. Rule: members that took part in a failed call report the
// error again in each new view. They send it to the members that may still wait for the
// result, unless a holder can send it.
void Group::tell_failed() {
  if (mutated(Mutation::kFailureToldOnce)) return;
  for (const auto& [seq, why] : keeper_.failures()) {
    const auto& held = view().held;
    const bool is_held = std::any_of(held.begin(), held.end(),
                                     [&](const auto& h) { return h.seq == seq; });
    // For members that joined later, the operation may have failed only for them.
    if (is_held || !view().takes_part(options_.self, seq)) continue;
    // The receiver may have the result by now. For it, this is no sign of different
    // calls.
    const bool is_other = why.code() == Code::kInvalidArgument;
    const Status again =
        is_other ? Status(Code::kAborted, why.message(), why.culprit()) : why;
    view().members.for_each([&](Rank r) {
      Peer& p = peers_[r];
      const bool is_near = seq.value <= p.called() + kMaxFailedAhead;
      if (r != options_.self && !p.is_lost() && is_near &&
          peers_.acked_by(r) < seq.value)
        p.send_abort(seq, again);
    });
  }
}

void Group::keep(const std::shared_ptr<collectives::SkippableOperation>& operation) {
  if (options_.size == 1 || mutated(Mutation::kFreeResultEarly)) return;
  keeper_.keep(operation, charge_of(*operation));
  trim_kept();
  owners_.on_result(operation->call().policy.rebalance);
}

// Bytes that the results of an operation count in the log: as much as a member that has
// not called it admits from one holder (receive_window.h).
uint64_t Group::charge_of(const collectives::Operation& operation) const {
  const Call& call = operation.call();
  const collectives::ShardPlan plan(call.count, size_of(call.dtype), options_.size,
                                    options_.operation.shard_bytes_of(call));
  return call.bytes() + SendWindow::kMessageCharge * uint64_t(plan.num_shards());
}

// Forgets results that all members have. For excluded members that may return, results
// are kept within the limit of the log.
void Group::trim_kept() {
  // An excluded member must still be able to report its exposed results, and a reported
  // result may be wanted in the next view.
  if ((keeper_.is_empty() && !skipped_.has_unheard()) || view_change_.is_removed() ||
      view_change_.is_promised())
    return;
  ResultKeeper::Acknowledged upto{marks_.acked, marks_.acked};
  for (int32_t r = 0; r < options_.size; ++r) {
    const Peer& p = peers_[Rank(r)];
    if (Rank(r) == options_.self || p.is_lost()) continue;
    if (view().has(Rank(r))) {
      upto.members = std::min(upto.members, p.acked());
    } else {
      upto.returning = std::min(upto.returning, absent_.return_floor(Rank(r)));
    }
  }
  skipped_.forget(upto.members);
  // Operations that were in progress when the others began to hold calls back need room
  // too.
  const uint64_t limit =
      options_.log_bytes + (expected_back().count() > 0 ? options_.log_bytes / 2 : 0);
  keeper_.release(upto, limit);
}

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Part of Group for its view (membership/view_change.h): messages, reports, and results
// that are kept for others.

#include <algorithm>
#include <limits>
#include <utility>

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

// ---- messages ----

void Group::send_view(Rank to, const ViewMessage& message) {
  peers_[to].send_view(message.step, encode(message));
}

// Note [acknowledgements behind a view]
// A member that excludes this one may acknowledge another result than the one that this
// member has. Its view is the first message with that acknowledgement (R10). If the
// acknowledgement counted first, this member would release its result, and would rejoin
// without a comparison. Rule: a message about a view counts before the acknowledgement
// in its header.
void Group::on_view_frame(Rank from, const FrameHeader& header) {
  const auto bytes = peers_[from].texts.read_view(header);
  if (!bytes) return;
  if (!life_.is_leaving() && !life_.has_ended()) {
    auto message = membership::decode_view_message(*bytes, options_.size);
    if (!message) return peers_[from].give_up(message.status());
    const Status taken = view_change_.on_message(from, *message, clock_->now());
    if (taken.has_failed()) peers_[from].give_up(taken);
    release_held_back();  // perhaps the absent member was refused
  }
  note_acked(from, header);
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
  absent_.on_view(view, reports_.received_by_all(), clock_->now())
      .for_each([&](Rank back) { policies_.forget_skips(back); });
  if (view.has(options_.self)) own_state_.forgive();
  const auto results = results_.keeper().results();
  for (const auto& [seq, kept] : results) kept.operation->on_view();
  for (const auto& [seq, operation] : calls_.sending()) operation->on_view();
  for (const auto& operation : calls_.operations()) {
    auto* skippable = operation->skippable();
    if (operation->has_failed() || skippable == nullptr) continue;
    const uint64_t seq = operation->seq().value;
    if (!operation->is_started())
      for (Peer& p : peers_) p.early.forget_results(seq);
    skippable->on_view();
    retire(seq);
  }
  results_.tell_failed();
  check_all_lost();
  update_known();
  results_.trim();
  stay_excluded_if_full();
  own_state_.publish(view_change_.is_removed());
  release_held_back();
  send_seals();
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
  results_.trim();
  for (Peer& p : peers_) p.answer();
  send_seals();
}

void Group::note_acked(Rank from, const FrameHeader& header) {
  const uint64_t acked = header.called + static_cast<uint64_t>(int64_t{header.acked});
  const uint64_t before = peers_[from].acked();
  if (!peers_[from].note_acked(acked)) return;
  // Messages on their way to this member are not needed any more. Strict calls have
  // none.
  std::vector<std::shared_ptr<collectives::SkippableOperation>> over;
  const auto& results = results_.keeper().results();
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
  results_.trim();
  update_known();
  send_seals();
}

}  // namespace aikido::engine

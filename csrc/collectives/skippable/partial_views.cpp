// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Skippable allreduce from one view to the next: its division into shards, their
// owners, and the results that stay.

#include <utility>

#include "base/mutation.h"
#include "collectives/skippable/partial_allreduce.h"

namespace aikido::collectives {

using transport::FrameKind;

bool PartialAllreduce::is_owner(Rank rank) const {
  return std::any_of(shards_.live().begin(), shards_.live().end(),
                     [&](int32_t s) { return shards_.at(s).owner == rank; });
}

// Starts again with the cut of the view.
void PartialAllreduce::cut() {
  contributions_.end_pacing();
  shards_.cut(view_host_->view(), host_->settings().shard_bytes_of(call_));
  divide();
  for (const int32_t s : shards_.live())
    if (shards_.at(s).owner == host_->self()) owner_.take_over(s);
}

// Note [divided shard]
// If an owner is lost or moved, all others send their contributions to its shard once
// more. A single new owner would receive and send all of it while the links of the
// others are idle. So in the new view each of the g remaining owners gets a part, which
// takes 1/g of the time. That is done only if no member has received the whole shard.
// Each holder has reported it in the view change, so all members of the view agree on
// it; an excluded member learns it when it rejoins. From then on a part is like a
// shard. Full sums, buckets and calls with backups are not divided.
void PartialAllreduce::divide() {
  const membership::View& view = view_host_->view();
  shards_.divide(
      view,
      [&](int32_t s) {
        const PartialShard& whole = shards_.at(s);
        return !whole.is_live || whole.is_received || !view.has(host_->self()) ||
               view.held_at(seq_, shards_.plan().number(s)) != nullptr;
      },
      [&](int32_t s) {
        contributions_.withdraw(s);
        results_.cancel(s);
        received_.let_go(s);
        incoming_.drop(shards_.at(s).owner, FrameKind::kResult, s);
      });
}

void PartialAllreduce::let_go_all() {
  for (const int32_t s : shards_.live()) {
    contributions_.withdraw(s);
    results_.cancel(s);
    received_.let_go(s);
  }
}

void PartialAllreduce::on_promise() {
  for (const int32_t s : shards_.live()) {
    PartialShard& mine = shards_.at(s);
    if (mine.is_received) continue;
    if (mine.own && mutated(Mutation::kOwnerKeepsClosed)) continue;
    // A result that was closed but not received may be replaced in the next view, so it
    // is kept aside.
    if (mine.own) {
      results_.cancel(s);
      if (mine.own->is_closed) mine.given_up = mine.header();
      mine.own->is_closed = mine.own->is_acknowledged = false;
    } else {
      if (mutated(Mutation::kAcceptAfterPromise)) continue;
      incoming_.drop(mine.owner, FrameKind::kResult, s);
      mine.bytes = 0;
    }
    mine.open_again();
  }
}

// An excluded member keeps its complete results until it has rejoined. If some shards
// are incomplete, it has exposed nothing, and the others may make another result. It
// sends nothing, because its cut may be that of an earlier view.
void PartialAllreduce::on_removed() {
  shards_.set_participants(view_host_->view());
  let_go_all();
  if (shards_.num_left() == 0) return;
  // In place, a received shard has overwritten the input, so it cannot be contributed
  // again.
  if (is_started() && local_.input == local_.output)
    for (const int32_t s : shards_.live())
      if (shards_.at(s).is_received) contributions_.lose_input();
  shards_.forget_results();
}

void PartialAllreduce::on_view() {
  if (!view_host_->view().has(host_->self())) {
    on_removed();
    return expose_if_done();
  }
  ShardTable plan =
      shards_.plan_in(view_host_->view(), host_->settings().shard_bytes_of(call_));
  bool is_anew = false;
  if (shards_.plan().is_extended_by(plan)) {
    shards_.extend(std::move(plan));
    divide();
  } else {
    // All members have it, and the view does not mention it any more.
    if (is_committed() && !is_skipped_) return expose_if_done();
    // No member has received any of it, so it is new in this view. It does not wait
    // longer than usual.
    is_anew = !std::exchange(was_anew_, true);
    let_go_all();
    cut();
  }
  shards_.set_participants(view_host_->view());
  shards_.on_view(is_anew);
  suspicion_.on_view();
  for (size_t i = 0; i < shards_.live().size(); ++i) {
    renew(shards_.in_turn(i));
    // Two copies of a data shard may differ here. Then all members have been told.
    if (has_failed()) return;
  }
  contributions_.send_paced();
  suspicion_.on_progress();
  received_.receive_closed();
  expose_if_done();
}

// Note [a given-up result becomes valid again]
// An owner that promises a new view gives up the results that it has closed, because
// that view may make other results. But if a member has received such a result, it is
// the result in all views. Its bytes are still here and were not overwritten, so they
// need not be sent back.

// Takes the shard into the new view.
void PartialAllreduce::renew(int32_t s) {
  PartialShard& mine = shards_.at(s);
  mine.is_acknowledged = mine.is_offered = false;
  const Rank owner = shards_.owner_in(view_host_->view(), s);
  // A contribution of the previous view to the same owner still counts.
  const bool is_sent = !mutated(Mutation::kCountTwice) &&
                       mine.contributed_in + 1 == view_host_->view().number &&
                       owner == mine.owner && !mine.contribution.empty();
  if (!is_sent && !mutated(Mutation::kNoResend)) contributions_.withdraw(s);
  mine.contributed_in = view_host_->view().number;
  if (owner != mine.owner && !view_host_->view().is_owner(mine.owner))
    shards_.note_moved(mine.owner);
  mine.owner = owner;
  const membership::Held* held =
      view_host_->view().held_at(seq_, shards_.plan().number(s));
  auto given_up = std::exchange(mine.given_up, std::nullopt);
  // See Note [a given-up result becomes valid again].
  if (given_up && held != nullptr && !held->lacking.contains(host_->self())) {
    mine.take(*std::move(given_up));
    received_.note_mask(s);
    received_.receive(s);
  }
  if (mine.is_received) {
    results_.cancel(s);
    // This member is the holder: it sends the result to the members that lack it.
    if (held == nullptr || owner != host_->self()) return;
    const RankSet late = results_.last_to_get(held->lacking, mine);
    RankSet others = held->lacking;
    late.for_each([&](Rank r) { others.erase(r); });
    results_.send(s, 0, shards_.plan().num_bytes(s), others, false);
    results_.send(s, 0, shards_.plan().num_bytes(s), late, true);
    return;
  }
  if (owner != host_->self()) {
    if (!mutated(Mutation::kOwnerKeepsClosed)) received_.let_go(s);
    return contribute(s);
  }
  owner_.take_over(s);
  contribute(s);
  if (mine.own && !mine.is_received && !has_failed()) owner_.close_if_due(s);
}

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Skippable allreduce: passes each event to the parts of the operation, and gives the
// caller its outcome. partial_views.cpp has the events of view changes.

#include "collectives/skippable/partial_allreduce.h"

#include <algorithm>
#include <utility>

#include "base/mutation.h"
#include "collectives/skippable/message_tokens.h"
#include "collectives/skippable/result_header.h"

namespace aikido::collectives {

using transport::FrameHeader;
using transport::FrameKind;

PartialAllreduce::PartialAllreduce(ViewHost* host, Seq seq, Call call,
                                   Rank first_caller)
    : SkippableOperation(host, seq, std::move(call), first_caller),
      group_policy_(host->policy(call_.policy)),
      shards_(host->self(), host->size(), seq, call_),
      incoming_(host, seq),
      results_(*this, group_policy_.history(), shards_),
      contributions_(*this, group_policy_.history(), shards_),
      called_(*this, shards_),
      backups_(*this, group_policy_, shards_, contributions_),
      suspicion_(*this, group_policy_, shards_, incoming_, called_),
      received_(*this, group_policy_, shards_, incoming_, results_, contributions_,
                suspicion_),
      owner_(*this, {group_policy_, shards_, incoming_, results_, contributions_,
                     called_, suspicion_, backups_, received_}) {
  cut();
}

Status PartialAllreduce::on_start() {
  // For the outcome: the results were decided before this member called.
  was_committed_ = is_committed();
  backups_.on_start();
  suspicion_.on_progress();
  contributions_.hesitate();
  // Results that arrived before the call are delivered now.
  for (const int32_t s : shards_.live())
    if (shards_.at(s).is_received) received_.copy_to_caller(s);
  contribute_all();
  on_called(host_->self());
  expose_if_done();
  return Status::ok();
}

void PartialAllreduce::contribute_all() {
  for (size_t i = 0; i < shards_.live().size(); ++i) {
    const int32_t s = shards_.in_turn(i);
    // If the mask is known already, it does not contain this member.
    if (!shards_.at(s).is_received && shards_.at(s).mask.count() == 0 && !has_failed())
      contribute(s);
  }
}

void PartialAllreduce::contribute(int32_t s) {
  if (!contributions_.may_contribute()) return;
  if (shards_.at(s).owner == host_->self()) return owner_.add_own_input(s);
  // The shard's result comes from its holder, without any contribution.
  if (view_host_->view().held_at(seq_, shards_.plan().number(s)) != nullptr) return;
  if (shards_.is_backup(host_->self())) return backups_.offer(s);
  contributions_.give(s);
}

// ---- frames ----

Result<std::byte*> PartialAllreduce::place(Rank from, const FrameHeader& header,
                                           std::span<const std::byte> rest) {
  std::byte* const nowhere = nullptr;
  if (header.kind == FrameKind::kReady) return nowhere;
  if (!is_bare(header)) incoming_.begin(from);
  const auto s = static_cast<int32_t>(header.shard);
  const bool is_now = header.view == view_host_->view().number;
  const bool is_known =
      header.kind == FrameKind::kContrib || header.kind == FrameKind::kResult;
  const size_t expected =
      shards_.is_live(header.shard) ? shards_.plan().num_bytes(s) : 0;
  if (!is_known || !shards_.is_live(header.shard) || header.total_bytes != expected) {
    // A frame of another view, which divides the tensor differently.
    if (is_known && !is_now) return nowhere;
    return misfit(from, header.total_bytes, expected);
  }
  auto place = header.kind == FrameKind::kContrib ? owner_.place(from, header, s, rest)
               : is_skipped_                      ? nowhere
                             : received_.place(from, header, s, rest);
  if (place && *place != nullptr && !is_bare(header))
    incoming_.write(from, header.kind, s);
  return place;
}

void PartialAllreduce::arrived(Rank from, const FrameHeader& header) {
  if (shards_.is_backup(from) && backups_.note_offer(from, header)) {
    owner_.close_if_due(static_cast<int32_t>(header.shard));
    expose_if_done();
  }
  if (is_bare(header)) return;
  const auto s = static_cast<int32_t>(header.shard);
  // The bytes were discarded if the shard was dropped while they arrived.
  if (!incoming_.end(from, header.kind, s)) return;
  if (header.kind == FrameKind::kContrib) {
    owner_.arrived(from, header);
  } else {
    received_.arrived(s, header);
  }
  expose_if_done();
}

void PartialAllreduce::on_notice(Rank from, const FrameHeader& header) {
  const auto s = static_cast<int32_t>(header.shard);
  const bool is_now =
      header.view == view_host_->view().number && !view_host_->is_promised();
  if (!shards_.is_live(header.shard) || !view_host_->view().has(from)) return;
  if (!is_now && !mutated(Mutation::kAcceptOldView)) return;
  // The owner asks for the bytes that this backup has offered.
  if (header.kind == FrameKind::kNeed && from == shards_.at(s).owner) backups_.give(s);
  OwnedShard* own = shards_.at(s).own.get();
  if (own == nullptr) return;
  if (header.kind == FrameKind::kAck) {
    own->is_acknowledged = own->is_closed;
    received_.receive_closed();
  } else if (header.kind == FrameKind::kPresent) {
    owner_.on_present(s, from);
  }
  expose_if_done();
}

// ---- events ----

void PartialAllreduce::on_called(Rank rank) {
  owner_.on_called(rank);
  if (rank != host_->self()) results_.send_to_caller(rank);
  if (called_.on_called(rank, host_->clock().now())) suspicion_.on_progress();
}

void PartialAllreduce::on_time(TimePoint now) {
  if (contributions_.end_hesitation(now)) contribute_all();
  for (const int32_t s : shards_.live()) {
    owner_.close_if_due(s);
    results_.send_to_late(s);
  }
  if (received_.looks_again() && !view_host_->is_promised()) received_.receive_closed();
  suspicion_.watch();
  expose_if_done();
}

std::optional<TimePoint> PartialAllreduce::next_look() const {
  std::optional<TimePoint> earliest = suspicion_.next_watch();
  const auto hesitates_until = contributions_.hesitates_until();
  if (hesitates_until && (!earliest || *hesitates_until < *earliest))
    earliest = hesitates_until;
  if (view_host_->is_promised()) return earliest;
  if (received_.looks_again()) return host_->clock().now();
  const auto look = owner_.next_look();
  if (look && (!earliest || *look < *earliest)) earliest = look;
  return earliest;
}

// ---- results ----

bool PartialAllreduce::is_decided() const {
  if (is_skipped_) return true;
  for (const int32_t s : shards_.live())
    if (!shards_.at(s).is_received &&
        view_host_->view().held_at(seq_, shards_.plan().number(s)) == nullptr)
      return false;
  return true;
}

// See Note [closed vs. received].
bool PartialAllreduce::is_withheld() const {
  const size_t num_owners = view_host_->view().cut_of(seq_).owners.size();
  const bool all_own = static_cast<size_t>(shards_.plan().num_shards()) == num_owners;
  return std::any_of(
      shards_.all().begin(), shards_.all().end(), [&](const PartialShard& mine) {
        if (mine.own && !mine.own->is_closed) return true;
        return all_own && mine.mask.count() > 0 && !shards_.is_full(mine);
      });
}

bool PartialAllreduce::is_closed() const {
  return std::none_of(shards_.all().begin(), shards_.all().end(),
                      [](const PartialShard& shard) { return shard.own != nullptr; });
}

bool PartialAllreduce::was_skipped() const {
  return std::any_of(
      shards_.all().begin(), shards_.all().end(), [&](const PartialShard& shard) {
        return shard.mask.world_size() > 0 && !shards_.is_backup(host_->self()) &&
               !shard.mask.contains(host_->self());
      });
}

void PartialAllreduce::report(std::vector<membership::ReceivedShard>& received) const {
  for (const int32_t s : shards_.live()) {
    if (!shards_.at(s).is_received) continue;
    if (mutated(Mutation::kReportExposedOnly) && !is_over()) continue;
    received.push_back({seq_, shards_.plan().number(s), shards_.fingerprint(s)});
  }
}

void PartialAllreduce::report_closed(
    std::vector<membership::ReceivedShard>& closed) const {
  for (const int32_t s : shards_.live()) {
    const PartialShard& mine = shards_.at(s);
    if (!mine.is_received && mine.own && mine.own->is_closed)
      closed.push_back({seq_, shards_.plan().number(s), shards_.fingerprint(s)});
  }
}

void PartialAllreduce::expose_if_done() {
  if (is_skipped_ && !is_over() && (is_closed() || !received_.is_needed())) {
    for (const int32_t s : shards_.live()) received_.let_go(s);
    set_over();
    for (const int32_t s : shards_.live()) results_.send_to_late(s);
  }
  if (!is_started() || is_over() || has_failed() || shards_.num_left() > 0) return;
  // An excluded member may hold a result that the others do not have, so it must rejoin
  // first.
  if (!view_host_->view().has(host_->self())) return;
  set_over();
  for (const int32_t s : shards_.live()) results_.send_to_late(s);
  if (local_.result_slot) local_.result_slot->memory = results_.shared_memory();
  succeed(make_outcome());
  if (!contributions_.are_on_their_way()) release_caller();
}

std::vector<Hole> PartialAllreduce::holes() const {
  if (!call_.policy.has_stand_ins()) return {};
  return holes_of(call_, host_->size(), make_outcome());
}

Outcome PartialAllreduce::make_outcome() const {
  Outcome outcome = outcome_of(call_, host_->self(), host_->size(), shards_.results());
  outcome.cancelled_bytes = contributions_.cancelled_bytes();
  outcome.was_committed = was_committed_;
  return outcome;
}

void PartialAllreduce::on_message_sent(uint32_t token) {
  if (token >= kFirstResultToken && token < kFirstPieceToken) {
    const auto number = static_cast<int32_t>(token - kFirstResultToken);
    const int32_t s = number / host_->size();
    const Rank to(number % host_->size());
    if (s >= shards_.plan().size() || !results_.on_left(s, to)) return;
    if (is_over() || has_failed() || view_host_->is_promised()) return;
    received_.receive_closed();
    return expose_if_done();
  }
  // The caller's memory is free once all contributions have left. Slow receivers of
  // results do not matter, because results have memory of their own.
  if (contributions_.on_left(token) && is_over()) release_caller();
}

std::vector<Rank> PartialAllreduce::missing() const {
  std::vector<Rank> ranks;
  RankSet named(host_->size());
  named.insert(host_->self());
  const auto name = [&](Rank r) {
    if (named.insert(r)) ranks.push_back(r);
  };
  for (const PartialShard& mine : shards_.all()) {
    if (mine.is_received) continue;
    if (mine.own)
      mine.own->policy->arrived().for_each_missing([&](Rank r) {
        if (!shards_.is_backup(r)) name(r);
      });
    // A closed shard of this member only lacks an acknowledgement.
    if (mine.own && mine.own->is_closed) continue;
    name(mine.owner);
  }
  return ranks;
}

// An owner that has called waits for the members that its policy includes.
std::vector<Rank> PartialAllreduce::awaited() const {
  std::vector<Rank> ranks = missing();
  if (ranks.empty()) return ranks;
  ranks.clear();
  view_host_->view().participants(seq_).for_each([&](Rank rank) {
    if (rank != host_->self()) ranks.push_back(rank);
  });
  return ranks;
}

// ---- skipped through ----

// Note [skipped through]
// A member that has copied the state of another member needs no results of the
// operations before that state, and never calls them. So it discards all further data
// for them, and the senders stop. It still closes the shards that it owns, without its
// own contribution. Nobody waits for its contribution.
void PartialAllreduce::skip_through() {
  is_skipped_ = true;
  contributions_.lose_input();
  for (const int32_t s : shards_.live()) {
    PartialShard& mine = shards_.at(s);
    if (mine.own && !mine.own->is_closed) {
      owner_.expect_fewer(s);
    } else if (!mine.is_received && !mine.own) {
      incoming_.drop(mine.owner, FrameKind::kResult, s);
      mine.bytes = 0;
    }
  }
  expose_if_done();
}

void PartialAllreduce::start_over() {
  for (const int32_t s : shards_.live()) {
    incoming_.drop_all(FrameKind::kContrib, s);
    incoming_.drop_all(FrameKind::kResult, s);
  }
  cut();
}

void PartialAllreduce::on_acked(Rank rank) {
  if (has_failed()) return;
  // The member needs no result any more, so queued pieces for it are cancelled.
  if (pending_sends_ > 0) results_.cancel_to(rank);
  for (const int32_t s : shards_.live()) {
    if (shards_.at(s).late.count() > 0) shards_.at(s).late.erase(rank);
    owner_.expect_fewer(s);
  }
  if (!view_host_->is_promised()) received_.receive_closed();
  expose_if_done();
}

}  // namespace aikido::collectives

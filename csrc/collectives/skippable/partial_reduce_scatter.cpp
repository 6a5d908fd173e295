// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/partial_reduce_scatter.h"

#include <algorithm>
#include <utility>

#include "collectives/weights.h"

namespace aikido::collectives {

using transport::FrameHeader;
using transport::FrameKind;

namespace {

// Estimated time of a copy: this, and one nanosecond for each byte. With page faults in
// fresh memory it is not much faster.
constexpr Duration kCopyStart = std::chrono::microseconds(100);

}  // namespace

PartialReduceScatter::PartialReduceScatter(ViewHost* host, Seq seq, Call call,
                                           Rank first_caller)
    : SkippableOperation(host, seq, std::move(call), first_caller),
      reduce_(kernels::find_reduce(call_.op, call_.dtype)),
      group_policy_(host->policy(call_.policy)),
      participants_(host->view().participants(seq)),
      givers_(participants_),
      receiving_(host->size()),
      contributions_(*this) {}

Status PartialReduceScatter::on_start() {
  const size_t bytes = block(host_->self()).bytes;
  // A contribution that arrived before the call has told the size of the block.
  if (own_ && own_bytes_ != bytes) return misfit(sized_by_, own_bytes_, bytes);
  // The group went on without this member.
  if (view_host_->view().has(host_->self()) && !takes_part()) {
    fail(excluded());
    return Status::ok();
  }
  if (!own_) make_own(bytes);
  contribute();
  if (takes_part()) own_->policy->on_arrival(host_->self(), host_->clock().now());
  fold_ahead();
  close_if_due();
  return Status::ok();
}

void PartialReduceScatter::contribute() {
  if (is_started() && takes_part()) contributions_.give_to(participants_);
}

void PartialReduceScatter::on_message_sent(uint32_t token) {
  contributions_.on_left(token);
  finish_if_done();
  if (is_over() && !is_sending()) host_->on_over(seq_);
}

// ---- frames ----

Result<std::byte*> PartialReduceScatter::place(Rank from, const FrameHeader& header,
                                               std::span<const std::byte> rest) {
  receiving_.erase(from);
  std::byte* const nowhere = nullptr;
  // It only asks if this rank has called.
  if (header.kind == FrameKind::kReady) return nowhere;
  const auto owner = static_cast<int32_t>(header.shard);
  if (header.kind == FrameKind::kResult && owner == from.value &&
      header.total_bytes == 0) {
    AIKIDO_TRY(contributions_.read_header(from, rest));
    return nowhere;
  }
  if (header.kind == FrameKind::kContrib && owner == host_->self().value)
    return place_contribution(from, header, rest);
  return misfit(from, header.total_bytes, 0);
}

Result<std::byte*> PartialReduceScatter::place_contribution(
    Rank from, const FrameHeader& header, std::span<const std::byte> rest) {
  std::byte* const nowhere = nullptr;
  const membership::View& view = view_host_->view();
  if (is_closed_ || !takes_part() || !participants_.contains(from)) return nowhere;
  // A frame from before the sender rejoined.
  if (header.view < view.seats[static_cast<size_t>(from.value)].since) return nowhere;
  if (!own_ && header.total_bytes <= call_.bytes()) {
    sized_by_ = from;
    make_own(header.total_bytes);
  }
  if (!own_ || header.total_bytes != own_bytes_)
    return misfit(from, header.total_bytes, own_bytes_);
  if (own_->has(from)) return nowhere;
  std::byte* const place = own_->place(from, header.offset, host_->pool());
  if (place == nullptr) return misfit(from, header.total_bytes, own_bytes_);
  if (call_.is_weighted && header.offset == 0) {
    auto weight = decode_weight(rest);
    if (!weight) return weight.status();
    own_->set_weight(from, *weight);
  }
  receiving_.insert(from);
  return place;
}

void PartialReduceScatter::arrived(Rank from, const FrameHeader& header) {
  if (receiving_.contains(from) && own_) {
    receiving_.erase(from);
    if (own_->arrived(from, header.payload_bytes))
      own_->policy->on_arrival(from, host_->clock().now());
    fold_ahead();
    close_if_due();
  }
  finish_if_done();
}

// ---- the owner ----

void PartialReduceScatter::make_own(size_t bytes) {
  own_bytes_ = bytes;
  own_ = std::make_unique<OwnedShard>(host_->self(), host_->size(), bytes);
  start_policy();
}

RankSet PartialReduceScatter::whole() const {
  RankSet whole(host_->size());
  for (int32_t r = 0; own_ && r < host_->size(); ++r)
    if (own_->has(Rank(r))) whole.insert(Rank(r));
  return whole;
}

// See Note [contribution of a departed member].
RankSet PartialReduceScatter::givers() const {
  RankSet givers = participants_;
  whole().for_each([&](Rank rank) {
    if (view_host_->has_gone(rank)) givers.insert(rank);
  });
  return givers;
}

bool PartialReduceScatter::has_all() const {
  if (is_closed_) return true;
  if (!takes_part()) return false;
  RankSet here = whole();
  here.insert(host_->self());
  return here.count() >= straggler::quorum_of(call_.policy, host_->size()) &&
         here.covers(participants_);
}

int32_t PartialReduceScatter::most_contributions(const RankSet& members) const {
  RankSet giving = members;
  whole().for_each([&](Rank rank) { giving.insert(rank); });
  return straggler::most_contributions(call_.policy, giving);
}

// Starts the policy with the contributions that have arrived.
void PartialReduceScatter::start_policy() {
  const TimePoint now = host_->clock().now();
  own_->folded = 0;
  own_->policy = group_policy_.start(seq_, call_.bytes());
  own_->policy->expect(givers_);
  givers_.for_each([&](Rank rank) {
    const bool is_here = rank == host_->self() ? is_started() : own_->has(rank);
    if (is_here) own_->policy->on_arrival(rank, now);
  });
}

// Bytes in arrival must not be written to memory that another owner gets.
void PartialReduceScatter::forget(Rank rank) {
  if (receiving_.contains(rank))
    host_->drop_incoming(rank, FrameKind::kContrib, seq_.value);
  receiving_.erase(rank);
  if (own_) own_->forget(rank);
}

void PartialReduceScatter::let_go() {
  for (int32_t r = 0; r < host_->size(); ++r) forget(Rank(r));
  own_.reset();
}

void PartialReduceScatter::fold(size_t end, const RankSet& mask) {
  own_->fold(local_.output, reduce_, counted(mask), block(host_->self()).data,
             own_->folded, end, call_.dtype,
             scale_of(call_, mask.count(), host_->size()));
  own_->folded = end;
}

// Folds before the close as far as possible. Not if the output overlaps the own input,
// which is needed again if a member is late after all.
void PartialReduceScatter::fold_ahead() {
  if (!own_ || !is_started() || !takes_part()) return;
  const std::byte* own = block(host_->self()).data;
  if (own < local_.output + own_bytes_ && local_.output < own + own_bytes_) return;
  const size_t element = size_of(call_.dtype);
  const size_t chunk = host_->settings().chunk_bytes / element * element;
  const size_t ready = own_->ready(givers_, own);
  while (own_->folded < own_bytes_) {
    const size_t end = std::min(own_bytes_, own_->folded + chunk);
    if (end > ready) return;
    fold(end, givers_);
  }
}

// While a new view is being agreed, nothing closes: a member that returns with it takes
// part in operations that nobody has called before, and waits for this member's
// contribution. If too few members live, no new view can come.
bool PartialReduceScatter::is_held_up() const {
  if (!view_host_->is_promised()) return false;
  const RankSet& members = view_host_->view().members;
  RankSet live(host_->size());
  members.for_each([&](Rank rank) {
    if (!view_host_->has_gone(rank)) live.insert(rank);
  });
  return membership::is_majority(view_host_->view(), live);
}

void PartialReduceScatter::close_if_due() {
  if (is_held_up()) return;
  if (!own_ || !is_started() || is_over() || has_failed() || !takes_part()) return;
  const TimePoint now = host_->clock().now();
  own_->tell_progress(now, [&](Rank r) { return received_of(r); });
  const straggler::Decision decision = own_->policy->decide(now);
  if (decision.closes()) close(decision);
  finish_if_done();
}

std::optional<uint64_t> PartialReduceScatter::received_of(Rank from) const {
  const auto bytes = host_->num_received(from, FrameKind::kContrib, seq_.value);
  return receiving_.contains(from) || bytes == 0 ? std::optional(bytes) : std::nullopt;
}

void PartialReduceScatter::close(const straggler::Decision& decision) {
  header_ = {own_->policy->arrived(), decision.reason,
             told_deadline(decision.deadline)};
  header_.weight = own_->total_weight(counted(header_.mask));
  is_closed_ = true;
  own_->tell_close(host_->clock().now(), [&](Rank r) { return received_of(r); });
  // The pieces folded ahead were sums of all members.
  if (!(header_.mask == givers_)) own_->folded = 0;
  fold(own_bytes_, header_.mask);
  let_go();
  group_policy_.history().on_committed(
      seq_, header_.mask, call_.bytes() + straggler::ResultLog::kOperationCharge);
  const auto encoded = encode_result_header(header_);
  view_host_->view().members.for_each([&](Rank rank) {
    if (!header_.mask.contains(rank))
      post(rank, FrameKind::kResult, host_->self().value, nullptr, 0, 0, 0, true,
           static_cast<uint32_t>(host_->self().value), encoded);
  });
  copy_at_ = host_->clock().now() + kCopyStart +
             Duration(static_cast<int64_t>(contributions_.bytes_under_way()));
}

void PartialReduceScatter::finish_if_done() {
  if (!is_started() || is_over() || has_failed() || !is_closed_) return;
  if (contributions_.num_under_way() > 0 && host_->clock().now() < copy_at_) return;
  set_over();
  for (int32_t r = 0; r < host_->size(); ++r) contributions_.disown(Rank(r));
  succeed(make_outcome());
  release_caller();
}

Outcome PartialReduceScatter::make_outcome() const {
  std::vector<OwnedResultHeader> known;
  for (int32_t r = 0; r < host_->size(); ++r) {
    const ResultHeader& theirs = contributions_.without_us(Rank(r));
    if (Rank(r) == host_->self()) {
      known.push_back({Rank(r), header_});
    } else if (theirs.mask.count() > 0) {
      known.push_back({Rank(r), theirs});
    }
  }
  Outcome outcome = outcome_of(call_, host_->self(), host_->size(), known);
  outcome.cancelled_bytes = contributions_.cancelled_bytes();
  return outcome;
}

void PartialReduceScatter::on_time(TimePoint) {
  close_if_due();
  finish_if_done();
}

std::optional<TimePoint> PartialReduceScatter::next_look() const {
  if (!is_started() || is_over()) return std::nullopt;
  if (is_closed_) return copy_at_;
  if (!own_ || !takes_part() || is_held_up()) return std::nullopt;
  return own_->next_look();
}

std::vector<Rank> PartialReduceScatter::missing() const {
  std::vector<Rank> ranks;
  participants_.for_each([&](Rank rank) {
    if (rank == host_->self()) return;
    const bool is_missing =
        is_closed_ ? contributions_.is_under_way(rank) : !own_ || !own_->has(rank);
    if (is_missing) ranks.push_back(rank);
  });
  return ranks;
}

// ---- views ----

Status PartialReduceScatter::excluded() const {
  return {Code::kAborted,
          concat(describe(call_), ", collective ", seq_.value, ": the group went on ",
                 "without rank ", host_->self().value,
                 " while nothing came from it, and nobody keeps what the others had "
                 "for its block; copy what is missing from another rank's state, and "
                 "go on with the next call"),
          host_->self()};
}

void PartialReduceScatter::on_view() {
  const membership::View& view = view_host_->view();
  participants_ = view.participants(seq_);
  const RankSet before = std::exchange(givers_, givers());
  for (int32_t r = 0; r < host_->size(); ++r) {
    if (participants_.contains(Rank(r)) && view.has(host_->self())) continue;
    contributions_.withdraw(Rank(r));
    if (!is_closed_ && !givers_.contains(Rank(r))) forget(Rank(r));
  }
  // An excluded member must rejoin first.
  if (is_over() || is_closed_ || !view.has(host_->self())) return finish_if_done();
  if (!takes_part()) {
    let_go();
    if (is_started()) fail(excluded());
    return;
  }
  if (is_started() && !own_) make_own(block(host_->self()).bytes);
  if (own_ && !(givers_ == before)) start_policy();
  contribute();
  fold_ahead();
  close_if_due();
}

}  // namespace aikido::collectives

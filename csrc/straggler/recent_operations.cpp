// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/recent_operations.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace aikido::straggler {

size_t size_class(uint64_t bytes) {
  return bytes == 0 ? 0 : static_cast<size_t>(std::bit_width(bytes) - 1) / 2;
}

RecentOperations::RecentOperations(int32_t world_size)
    : world_size_(world_size),
      members_(static_cast<size_t>(world_size)),
      operations_(kMost) {}

// Null for an operation older than the window.
RecentOperations::Operation* RecentOperations::slot(Seq seq) {
  Operation& op = operations_[seq.value % kMost];
  if (op.seq > seq) return nullptr;
  if (op.seq == seq) return &op;
  if (op.is_closed) {
    bytes_ -= static_cast<double>(op.bytes);
    to_quorums_ -= op.to_quorum;
    num_partial_ -= op.missing.count() > 0 ? 1 : 0;
  }
  longest_lags_[seq.value % kMost] = Duration::zero();
  std::vector<Seat> seats = std::move(op.seats);
  seats.assign(static_cast<size_t>(world_size_), Seat{});
  op = Operation{};
  op.seq = seq;
  op.seats = std::move(seats);
  return &op;
}

const RecentOperations::Operation* RecentOperations::find(Seq seq) const {
  const Operation& op = operations_[seq.value % kMost];
  return op.seq == seq && seq > Seq(0) ? &op : nullptr;
}

void RecentOperations::on_called(Rank rank, Seq seq, TimePoint now) {
  MemberLags& m = members_[static_cast<size_t>(rank.value)];
  if (seq <= m.called) return;
  const bool is_next = seq.value == m.called.value + 1;
  m.called = seq;
  Operation* op = slot(seq);
  if (op == nullptr) return;
  Seat& seat = op->seats[static_cast<size_t>(rank.value)];
  const Operation* before = find(Seq(seq.value - 1));
  seat.is_pipelined = is_next && before != nullptr && !before->is_closed;
  seat.late_start = is_next ? m.late_start : Duration::zero();
  m.late_start = op->is_closed ? now - op->closed_at : Duration::zero();
}

void RecentOperations::on_quorum(Seq seq, uint64_t bytes, TimePoint t_q) {
  Operation* op = slot(seq);
  if (op == nullptr || op->has_quorum) return;
  op->bytes = std::max<uint64_t>(bytes, 1);
  op->t_q = t_q;
  op->has_quorum = true;
  if (num_closed_ > 0) op->to_quorum = std::max(t_q - last_close_, Duration::zero());
}

void RecentOperations::on_lag(Seq seq, Rank rank, Duration lag) {
  Operation* op = slot(seq);
  if (op == nullptr) return;
  Seat& seat = op->seats[static_cast<size_t>(rank.value)];
  seat.lag = lag;
  MemberLags& m = members_[static_cast<size_t>(rank.value)];
  m.last_lags[m.num_lags++ % kFew] = lag;
  const Operation* before = find(Seq(seq.value - 1));
  if (before != nullptr && before->is_closed && before->mask.contains(rank) &&
      !seat.is_pipelined)
    m.fair.push(lag);
  auto& longest = longest_lags_[seq.value % kMost];
  longest = std::max(longest, lag);
}

void RecentOperations::on_closed(Seq seq, const RankSet& mask, const RankSet& members,
                                 TimePoint now) {
  Operation* op = slot(seq);
  if (op == nullptr || !op->has_quorum || op->is_closed) return;
  op->is_closed = true;
  op->closed_at = now;
  op->mask = mask;
  op->missing = members;
  mask.for_each([&](Rank rank) { op->missing.erase(rank); });
  last_close_ = std::max(last_close_, now);
  last_closed_ = std::max(last_closed_, seq);
  bytes_ += static_cast<double>(op->bytes);
  to_quorums_ += op->to_quorum;
  num_partial_ += op->missing.count() > 0 ? 1 : 0;
  ++num_closed_;
  ++num_closed_by_size_[size_class(op->bytes)];
}

void RecentOperations::forget_late_starts() {
  for (MemberLags& m : members_) m.late_start = Duration::zero();
}

void RecentOperations::forgive(Rank rank) {
  members_[static_cast<size_t>(rank.value)].last_lags.fill(Duration::zero());
}

Duration RecentOperations::longest_of_few(Rank rank) const {
  const auto& lags = members_[static_cast<size_t>(rank.value)].last_lags;
  return *std::max_element(lags.begin(), lags.end());
}

Duration RecentOperations::shortest_of_few(Rank rank) const {
  const auto& lags = members_[static_cast<size_t>(rank.value)].last_lags;
  return *std::min_element(lags.begin(), lags.end());
}

Duration RecentOperations::late_start(Rank rank, Seq seq) const {
  const MemberLags& m = members_[static_cast<size_t>(rank.value)];
  if (m.called.value + 1 == seq.value) return m.late_start;
  const Operation* op = find(seq);
  if (m.called < seq || op == nullptr) return Duration::zero();
  return op->seats[static_cast<size_t>(rank.value)].late_start;
}

// Note [delay vs. late start]
std::optional<Duration> RecentOperations::delay(Seq seq, Rank rank) const {
  const Operation* op = find(seq);
  if (op == nullptr) return std::nullopt;
  const auto i = static_cast<size_t>(rank.value);
  const Seat& seat = op->seats[i];
  if (seat.lag < Duration::zero()) {
    const bool is_absent =
        op->is_closed && !op->mask.contains(rank) && !op->missing.contains(rank);
    return is_absent ? std::optional(Duration::zero()) : std::nullopt;
  }
  Duration start = seat.late_start;
  if (seat.is_pipelined) {
    const Operation* before = find(Seq(seq.value - 1));
    if (before != nullptr) start = std::max(start, before->seats[i].lag);
  }
  return std::max(seat.lag - start, Duration::zero());
}

std::optional<PastOperation> RecentOperations::closed(Seq seq) const {
  const Operation* op = find(seq);
  if (op == nullptr || !op->is_closed) return std::nullopt;
  return PastOperation{seq,
                       op->bytes,
                       op->t_q,
                       op->to_quorum,
                       op->closed_at - op->t_q,
                       op->missing.count()};
}

std::vector<PastOperation> RecentOperations::all() const {
  std::vector<PastOperation> all;
  all.reserve(kMost);
  for (uint64_t back = std::min<uint64_t>(kMost, last_closed_.value); back > 0; --back)
    if (const auto op = closed(Seq(last_closed_.value - back + 1))) all.push_back(*op);
  return all;
}

Duration RecentOperations::period(uint64_t bytes) const {
  if (bytes_ == 0) return Duration::zero();
  const double share = static_cast<double>(std::max<uint64_t>(bytes, 1)) / bytes_;
  return Duration(
      static_cast<int64_t>(static_cast<double>(to_quorums_.count()) * share));
}

size_t RecentOperations::num_closed(uint64_t bytes) const {
  return num_closed_by_size_[size_class(bytes)];
}

Duration RecentOperations::longest_lag() const {
  return *std::max_element(longest_lags_.begin(), longest_lags_.end());
}

}  // namespace aikido::straggler

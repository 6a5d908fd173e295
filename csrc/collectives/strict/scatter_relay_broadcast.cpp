// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/scatter_relay_broadcast.h"

#include <algorithm>
#include <limits>

#include "base/wire.h"
#include "membership/view.h"

namespace aikido::collectives {

using transport::FrameHeader;
using transport::FrameKind;

namespace {

// Tokens of sent messages. On the root: the rank, for a message with all data; the rank
// plus the group size, for missed bytes. On the other ranks, for a copy: the number of
// its Passing times the group size, plus the rank of the receiver. kNoToken for all
// other messages.
constexpr uint32_t kNoToken = std::numeric_limits<uint32_t>::max();

}  // namespace

static_assert(kMaxCallBytes + kMaxPartialSize / 8 <= transport::kMaxExtensionBytes);

bool ScatterRelayBroadcast::suits(const Call& call, int32_t size, size_t eager_bytes) {
  return call.kind == CallKind::kBroadcast && call.bytes() > eager_bytes && size > 2 &&
         size <= kMaxPartialSize;
}

ScatterRelayBroadcast::ScatterRelayBroadcast(OperationHost* host, Seq seq, Call call,
                                             Rank first_caller)
    : Operation(host, seq, std::move(call), first_caller),
      callers_(host->size()),
      sent_(host->size()),
      far_(host->size()),
      sources_(static_cast<size_t>(host->size()), IncomingData{RankSet(host->size())}),
      unsent_(static_cast<size_t>(host->size())) {}

const std::byte* ScatterRelayBroadcast::data() const {
  return is_root() ? local_.out_blocks.front().data : local_.in_blocks.front().data;
}

Status ScatterRelayBroadcast::nonsense(Rank from, const char* what) const {
  return {Code::kProtocol,
          concat(describe(call_), ", collective ", seq_.value, " of its group: rank ",
                 from.value, " tells rank ", host_->self().value, " ", what),
          from};
}

Status ScatterRelayBroadcast::on_start() {
  if (!is_root()) {
    post(call_.root, FrameKind::kReady, 0, nullptr, 0, 0, call_.bytes(), true,
         kNoToken);
    return Status::ok();
  }
  // Ranks that map this process's blocks get all data from there; only the others need
  // relays.
  for (const Rank rank : others())
    if (!host_->reads_our_memory(rank)) far_.insert(rank);
  num_readers_ = static_cast<size_t>(host_->size() - 1 - far_.count());
  // A single far rank has no other rank to pass pieces on to.
  if (far_.count() == 1) far_ = RankSet(host_->size());
  if (far_.count() > 0)
    sends_.emplace(host_->size(), far_.count(), call_.bytes(),
                   host_->settings().chunk_bytes);
  for (const Rank rank : others())
    if (callers_.contains(rank)) join(rank);
  hand_out();
  return Status::ok();
}

// ---- the root ----

void ScatterRelayBroadcast::join(Rank rank) {
  if (far_.contains(rank)) return sends_->join(rank, &host_->learnt(rank).relay_pace);
  num_copies_ = std::max<size_t>(1, num_readers_);
  post(rank, FrameKind::kData, 0, data(), call_.bytes(), 0, call_.bytes(), true,
       static_cast<uint32_t>(rank.value));
}

void ScatterRelayBroadcast::hand_out() {
  // Each piece goes to one relay.
  num_copies_ = 1;
  while (sends_) {
    const auto piece = sends_->next(host_->clock().now());
    if (!piece) break;
    std::vector<std::byte> mask;
    if (!piece->was_missed) membership::append(mask, piece->pass_to);
    post(piece->to, FrameKind::kData, 0, data() + piece->begin,
         piece->end - piece->begin, piece->begin, call_.bytes(), true,
         piece->was_missed ? static_cast<uint32_t>(host_->size() + piece->to.value)
                           : kNoToken,
         mask);
  }
}

bool ScatterRelayBroadcast::has_served_all() const {
  return missing().empty() && (!sends_ || sends_->is_handed_out());
}

void ScatterRelayBroadcast::on_told(Rank relay, size_t bytes) {
  const TimePoint now = host_->clock().now();
  const bool is_relay = is_started() && sends_ && far_.contains(relay);
  // The number comes from the peer, so it may be wrong.
  if (!is_relay || !sends_->on_passed(relay, bytes, now))
    return host_->fail_everywhere(
        seq_, nonsense(relay, "that it has passed on what it cannot have"));
  hand_out();
  finish_if_done();
}

// ---- the others ----

Result<std::byte*> ScatterRelayBroadcast::place(Rank from, const FrameHeader& header,
                                                std::span<const std::byte> rest) {
  // Any member may ask if this rank has called.
  if (header.kind == FrameKind::kReady) return nullptr;
  if (header.kind == FrameKind::kData && is_root() && header.payload_bytes == 0)
    return nullptr;
  const bool is_expected = header.kind == FrameKind::kData && is_started() &&
                           !is_root() && header.total_bytes == call_.bytes();
  if (!is_expected) return misfit(from, header.total_bytes, call_.bytes());
  if (here_.has_any(header.offset, header.offset + header.payload_bytes))
    return nonsense(from, "what is here already");
  IncomingData& source = sources_[static_cast<size_t>(from.value)];
  // A new message begins; otherwise the last one continues.
  if (header.extension_bytes > 0) {
    source.is_piece = !rest.empty();
    source.pass_to = RankSet(host_->size());
    if (source.is_piece) {
      WireReader reader{rest};
      source.pass_to = membership::take_set(reader, host_->size());
      if (!reader.ok || !rest.empty() || from != call_.root ||
          source.pass_to.contains(from) || source.pass_to.contains(host_->self()))
        return nonsense(from, "to pass on data to whom it cannot");
    }
  }
  return local_.in_blocks.front().data + header.offset;
}

void ScatterRelayBroadcast::arrived(Rank from, const FrameHeader& header) {
  if (header.kind == FrameKind::kReady) {
    if (!is_root() || !callers_.insert(from) || !is_started()) return;
    join(from);
    hand_out();
    return;
  }
  if (is_root()) return on_told(from, header.total_bytes);
  const size_t end = header.offset + header.payload_bytes;
  // Two members may have begun to send the same bytes.
  if (!here_.add(header.offset, end))
    return host_->fail_everywhere(seq_, nonsense(from, "what is here already"));
  got_ += header.payload_bytes;
  IncomingData& source = sources_[static_cast<size_t>(from.value)];
  source.end = end;
  if (source.is_piece) pass_on(source, header.offset, end);
  finish_if_done();
}

void ScatterRelayBroadcast::pass_on(const IncomingData& source, size_t begin,
                                    size_t end) {
  const int32_t copies = source.pass_to.count();
  if (copies == 0) return on_passed(end - begin);
  const auto size = static_cast<uint32_t>(host_->size());
  // Wraps before the token would reach kNoToken.
  const uint32_t number = next_number_++ % (kNoToken / size);
  passing_[number] = {end - begin, copies};
  num_copies_ = 0;
  source.pass_to.for_each([&](Rank to) { num_copies_ += host_->reads_our_memory(to); });
  num_copies_ = std::max<size_t>(1, num_copies_);
  source.pass_to.for_each([&](Rank to) {
    ++unsent_[static_cast<size_t>(to.value)];
    post(to, FrameKind::kData, 0, data() + begin, end - begin, begin, call_.bytes(),
         true, number * size + static_cast<uint32_t>(to.value));
  });
}

void ScatterRelayBroadcast::on_copy_sent(uint32_t token) {
  const auto size = static_cast<uint32_t>(host_->size());
  --unsent_[token % size];
  const auto it = passing_.find(token / size);
  if (--it->second.copies > 0) return;
  const size_t bytes = it->second.bytes;
  passing_.erase(it);
  if (!is_over()) on_passed(bytes);
}

// Reports the passed bytes while the root may have more pieces for this relay, and at
// the end.
void ScatterRelayBroadcast::on_passed(size_t bytes) {
  passed_ += bytes;
  if (got_ == call_.bytes() && !passing_.empty()) return;
  post(call_.root, FrameKind::kData, 0, nullptr, 0, 0, passed_, false, kNoToken);
}

// ---- all ----

void ScatterRelayBroadcast::on_message_sent(uint32_t token) {
  const auto size = static_cast<uint32_t>(host_->size());
  const bool is_data = token != kNoToken;
  if (is_data && !is_root()) on_copy_sent(token);
  if (is_data && is_root() && token < size)
    sent_.insert(Rank(static_cast<int32_t>(token)));
  if (is_data && is_root() && token >= size) {
    sends_->on_caught_up(Rank(static_cast<int32_t>(token - size)));
    if (!is_over()) hand_out();
  }
  finish_if_done();
}

void ScatterRelayBroadcast::finish_if_done() {
  if (!is_started() || is_over() || pending_sends_ > 0) return;
  if (is_root() ? !has_served_all() : got_ < call_.bytes()) return;
  // All data is here. Further copies must not touch the caller's memory.
  if (!is_root()) {
    for (const Rank rank : others())
      host_->drop_incoming(rank, FrameKind::kData, seq_.value);
  }
  set_over();
  succeed({});
}

std::vector<Rank> ScatterRelayBroadcast::missing() const {
  std::vector<Rank> ranks;
  if (!is_started()) return ranks;
  for (const Rank rank : others()) {
    const bool is_served =
        callers_.contains(rank) &&
        (far_.contains(rank) ? !sends_->is_busy(rank) : sent_.contains(rank));
    const bool is_awaited = rank == call_.root && got_ < call_.bytes();
    const bool is_unsent = unsent_[static_cast<size_t>(rank.value)] > 0;
    if (is_root() ? !is_served : is_awaited || is_unsent) ranks.push_back(rank);
  }
  return ranks;
}

// Each relay sends its bytes in order. A relay that has sent bytes beyond the first
// missing byte does not have that byte for this member.
std::vector<Rank> ScatterRelayBroadcast::suspects() const {
  std::vector<Rank> ranks = missing();
  if (!is_started() || is_root() || got_ == call_.bytes()) return ranks;
  const size_t lacks = here_.first_missing();
  for (const Rank rank : others()) {
    const bool is_relay = rank != call_.root && host_->called_by(rank) >= seq_.value;
    const bool may_have_it = sources_[static_cast<size_t>(rank.value)].end <= lacks;
    const bool is_named = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    if (is_relay && may_have_it && !is_named) ranks.push_back(rank);
  }
  return ranks;
}

void ScatterRelayBroadcast::probe() {
  for (const Rank rank : missing())
    post(rank, FrameKind::kReady, 0, nullptr, 0, 0, call_.bytes(), true, kNoToken);
}

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/frame_sender.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "transport/shm/shm_buffer_pool.h"

namespace aikido::transport {
namespace {

// Limit of the bytes that one link writes per turn, before other links continue.
constexpr size_t kTurnBytes = 1 << 20;
// Limit of the chunks that are taken from the scheduler for one write. A more urgent
// message waits for these.
constexpr size_t kGatherBytes = 256 << 10;
constexpr size_t kGatherChunks = 16;
// After so many copied bytes a sleeping reader is woken before more is copied. A
// wake-up takes no longer than a few such copies.
constexpr size_t kWakeBytes = 64 << 10;

}  // namespace

FrameSender::Turn FrameSender::whole_turn() {
  return {kTurnBytes, kGatherChunks, std::numeric_limits<size_t>::max()};
}

MessageId FrameSender::add(OutMessage&& message) {
  const MessageId id = next_id_++;
  message.turn = scheduler_.turn_of(message.turn);
  trace_.on_queued(id, message);
  if (!message.is_held) queue(id, message);
  num_last_ += message.leaves_last ? 1 : 0;
  messages_.emplace(id, Queued{std::move(message), 0, false});
  return id;
}

MessageId FrameSender::drop(OutMessage& message) {
  sent_.add(message);
  return next_id_++;
}

// Writes the whole message now if the stream surely takes it. This costs a copy, but
// nothing must be remembered until the end of the turn. A sender that may cancel within
// the turn uses send() instead.
bool FrameSender::send_at_once(const OutMessage& m) {
  const size_t all = kHeaderBytes + m.extension_bytes + m.bytes;
  if (stream_->room() < all || m.is_held ||
      m.bytes > scheduler_.chunk_bytes(m.chunk_bytes) || is_lent(m, m.bytes) ||
      !scheduler_.is_empty() || !outgoing_.empty())
    return false;
  const MessageId id = next_id_++;
  Prefix prefix;
  begin_with(prefix, m, {id, 0, m.bytes, true}, 0);
  const std::array<iovec, 2> parts{
      {{prefix.data.data(), prefix.bytes},
       {const_cast<std::byte*>(m.data), m.data == nullptr ? 0 : m.bytes}}};
  auto written = stream_->write(parts);
  if (!written) return false;  // the next write reports it
  if (*written < all) {        // the peer has withdrawn room that it had announced
    stream_->hang_up();
    return false;
  }
  stream_->push(m.urgency);
  scheduler_.count_passed();
  trace_.on_queued(id, m);
  trace_.on_picked(id, 0, m.bytes);
  trace_.on_written(id);
  trace_.on_gone(id, 0);
  return true;
}

void FrameSender::queue(MessageId id, const OutMessage& m) {
  // If a chunk of lower priority is chosen but not written, the choice is made again.
  if (!outgoing_.empty() && outgoing_.back().priority < m.priority) put_back();
  scheduler_.push(m.waiting(id), loop_->now());
}

bool FrameSender::let_go(MessageId id) {
  const auto it = messages_.find(id);
  if (it == messages_.end()) return false;
  OutMessage& m = it->second.message;
  if (std::exchange(m.is_held, false)) queue(id, m);
  return true;
}

bool FrameSender::hurry() {
  if (std::exchange(num_last_, 0) == 0) return false;
  if (!outgoing_.empty()) put_back();
  for (auto& [id, queued] : messages_) {
    OutMessage& m = queued.message;
    if (!m.leaves_last) continue;
    const Waiting last = m.waiting(id);
    m.leaves_last = false;
    if (!m.is_held) scheduler_.move(last, m.priority, loop_->now());
  }
  return true;
}

size_t FrameSender::cancel(MessageId id) {
  const auto it = messages_.find(id);
  if (it == messages_.end()) return 0;
  const OutMessage& m = it->second.message;
  size_t dropped = m.is_held ? m.bytes : scheduler_.cancel(m.waiting(id)).value_or(0);
  const auto has_begun = [](const Outgoing& out) { return out.sent > 0; };
  std::erase_if(outgoing_, [&](const Outgoing& out) {
    if (out.chunk.message != id || has_begun(out)) return false;
    outgoing_bytes_ -= out.prefix.bytes + out.payload_bytes;
    dropped += out.payload_bytes;
    return true;
  });
  // The peer has received a part of this frame and waits for the rest.
  if (!outgoing_.empty() && outgoing_.front().chunk.message == id) {
    Outgoing& out = outgoing_.front();
    out.aside.assign(out.payload, out.payload + out.payload_bytes);
    out.payload = out.aside.data();
  }
  release(id, dropped);
  return dropped;
}

void FrameSender::put_back() {
  while (!outgoing_.empty() && outgoing_.back().sent == 0) {
    const Outgoing& out = outgoing_.back();
    outgoing_bytes_ -= out.prefix.bytes + out.payload_bytes;
    const auto found = messages_.find(out.chunk.message);
    if (found != messages_.end()) {
      const OutMessage& m = found->second.message;
      scheduler_.put_back(out.chunk, m.waiting(found->first), loop_->now());
      trace_.on_put_back(out.chunk.message);
      --found->second.in_flight;
      found->second.is_through = false;
    }
    outgoing_.pop_back();
  }
}

// True if a chunk of this size goes in a block.
bool FrameSender::is_lent(const OutMessage& m, size_t bytes) const {
  const LeaseGrantor* grantor = stream_->grantor();
  return grantor != nullptr && m.data != nullptr && grantor->takes(bytes);
}

void FrameSender::begin_with(Prefix& prefix, const OutMessage& m, const Chunk& chunk,
                             uint8_t block) const {
  FrameHeader h = m.header;
  h.offset = m.header.offset + chunk.offset;
  h.payload_bytes = static_cast<uint32_t>(chunk.bytes);
  h.block = block;
  h.extension_bytes = chunk.offset == 0 ? m.extension_bytes : uint8_t{0};
  h.called = handler_->called();
  h.acked = handler_->acked();
  encode(h, std::span<std::byte, kHeaderBytes>(prefix.data.data(), kHeaderBytes));
  std::memcpy(prefix.data.data() + kHeaderBytes, m.extension.data(), h.extension_bytes);
  prefix.bytes = kHeaderBytes + h.extension_bytes;
}

// Copies the chunk into a block. Requires room for its frame in the stream, so that it
// need not be taken back. 0: no block, and the payload goes through the stream. Empty:
// the peer has as many blocks as it may have.
std::optional<uint8_t> FrameSender::lease(const OutMessage& m, const Chunk& chunk) {
  if (!is_lent(m, chunk.bytes)) return 0;
  LeaseGrantor* grantor = stream_->grantor();
  const size_t ahead = outgoing_bytes_ + kHeaderBytes + kMaxExtensionBytes;
  if (stream_->room() < ahead || !grantor->has_credit()) return std::nullopt;
  const uint64_t part = uint64_t{m.edition} << 32 | uint64_t{m.header.shard} << 8 |
                        uint64_t(m.header.kind);
  return grantor->grant(
      m.data + chunk.offset,
      {m.owner, part, m.header.offset + chunk.offset, chunk.bytes, m.num_receivers});
}

// Moves chunks from the scheduler to outgoing_, and adds the bytes of leased chunks to
// `leased`. A leased chunk is the last: during the copy of a further chunk the peer
// could not see this one, and both sides would copy in turns. Returns false if the next
// chunk must wait for room.
bool FrameSender::gather(const Turn& turn, size_t* leased) {
  while (outgoing_bytes_ < kGatherBytes && outgoing_.size() < turn.chunks) {
    const auto chunk = scheduler_.pop(loop_->now(), turn.chunk_bytes);
    if (!chunk) return true;
    Queued& queued = messages_.at(chunk->message);
    const OutMessage& m = queued.message;
    const auto block = lease(m, *chunk);
    if (!block) {
      scheduler_.put_back(*chunk, m.waiting(chunk->message), loop_->now());
      return false;
    }
    Outgoing& out = outgoing_.emplace_back();
    out.chunk = *chunk;
    out.priority = m.priority;
    urgency_ = std::max(urgency_, m.urgency);
    begin_with(out.prefix, m, *chunk, *block);
    if (*block != 0) {
      *leased += chunk->bytes;
    } else {
      out.payload = m.data == nullptr ? nullptr : m.data + chunk->offset;
      out.payload_bytes = chunk->bytes;
    }
    outgoing_bytes_ += out.prefix.bytes + out.payload_bytes;
    trace_.on_picked(chunk->message, chunk->offset, chunk->bytes);
    ++queued.in_flight;
    queued.is_through = chunk->is_last;
    if (*block != 0) break;
  }
  return true;
}

FrameSender::Written FrameSender::write(const Turn& turn) {
  size_t total = 0;
  while (!is_empty()) {
    // A turn of one chunk is complete; the uplink knows of the rest.
    if (total >= turn.bytes)
      return {total, turn.chunks > 1 ? End::kWaits : End::kTurnOver};
    const size_t before = total;
    const bool goes_on = gather(turn, &total);
    if (outgoing_.empty()) return {total, goes_on ? End::kTurnOver : End::kWaits};
    std::array<iovec, 2 * kGatherChunks> parts;
    size_t num_parts = 0;
    size_t offered = 0;
    for (Outgoing& out : outgoing_) {
      if (out.sent < out.prefix.bytes) {
        parts[num_parts++] = {out.prefix.data.data() + out.sent,
                              out.prefix.bytes - out.sent};
      }
      const size_t payload_sent =
          out.sent > out.prefix.bytes ? out.sent - out.prefix.bytes : 0;
      if (payload_sent < out.payload_bytes) {
        parts[num_parts++] = {const_cast<std::byte*>(out.payload) + payload_sent,
                              out.payload_bytes - payload_sent};
      }
      offered += out.prefix.bytes + out.payload_bytes - out.sent;
    }
    auto written = stream_->write(std::span(parts.data(), num_parts));
    if (!written) return {total, End::kBroken};
    if (total - before >= kWakeBytes) stream_->push_at_once(urgency_);
    total += *written;
    if (*written == 0) return {total, End::kWaits};
    advance(*written);
    if (turn.chunks == 1 && *written < offered) return {total, End::kWaits};
  }
  return {total, End::kAllWritten};
}

void FrameSender::push(size_t bytes) {
  if (bytes > 0) stream_->push(urgency_);
  if (outgoing_.empty()) urgency_ = Urgency::kNone;
}

void FrameSender::advance(size_t written) {
  outgoing_bytes_ -= written;
  while (written > 0) {
    Outgoing& out = outgoing_.front();
    const size_t left = out.prefix.bytes + out.payload_bytes - out.sent;
    const size_t n = std::min(left, written);
    out.sent += n;
    written -= n;
    if (n < left) return;
    const MessageId id = out.chunk.message;
    outgoing_.pop_front();
    trace_.on_written(id);
    const auto queued = messages_.find(id);
    if (queued == messages_.end()) continue;  // cancelled
    if (--queued->second.in_flight == 0 && queued->second.is_through) release(id, 0);
  }
}

void FrameSender::release(MessageId id, size_t dropped) {
  trace_.on_gone(id, dropped);
  const auto it = messages_.find(id);
  sent_.add(it->second.message);
  messages_.erase(it);
}

void FrameSender::drop_all() {
  outgoing_.clear();
  scheduler_.clear();
  for (auto& [id, queued] : messages_) sent_.add(queued.message);
  messages_.clear();
  trace_.on_lost();
}

void FrameSender::forget() {
  messages_.clear();
  outgoing_.clear();
  sent_.clear();
}

}  // namespace aikido::transport

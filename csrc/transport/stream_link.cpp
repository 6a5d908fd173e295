// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/stream_link.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

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

StreamLink::StreamLink(EventLoop* loop, Uplink* uplink,
                       std::unique_ptr<ByteStream> stream, Lane lane, Rank peer,
                       size_t chunk_bytes, LinkHandler* handler)
    : loop_(loop),
      stream_(std::move(stream)),
      uplink_(lane == Lane::kBulk && stream_->unacknowledged() ? uplink : nullptr),
      peer_(peer),
      handler_(handler),
      scheduler_(chunk_bytes, lane == Lane::kBulk ? &uplink->counters() : nullptr),
      receiver_(stream_.get(), lane, peer, handler) {
  if (uplink_ != nullptr) uplink_->add(this);
  stream_->start(this);
}

StreamLink::~StreamLink() {
  close();
  loop_->forget_flush(this);
}

MessageId StreamLink::send(OutMessage&& message) {
  const MessageId id = next_id_++;
  if (!can_send_) {
    sent_.add(message);
    want_flush();
    return id;
  }
  message.turn = scheduler_.turn_of(message.turn);
  trace_.on_queued(id, message);
  if (!message.is_held) queue(id, message);
  num_last_ += message.leaves_last ? 1 : 0;
  messages_.emplace(id, Queued{std::move(message), 0, false});
  want_flush();
  return id;
}

// Writes the whole message now if the stream surely takes it. This costs a copy, but
// nothing must be remembered until the end of the turn. A sender that may cancel within
// the turn uses send() instead.
bool StreamLink::send_at_once(const OutMessage& m) {
  const size_t all = kHeaderBytes + m.extension_bytes + m.bytes;
  if (!can_send_ || stream_->room() < all || m.is_held ||
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

void StreamLink::queue(MessageId id, const OutMessage& m) {
  // If a chunk of lower priority is chosen but not written, the choice is made again.
  if (!outgoing_.empty() && outgoing_.back().priority < m.priority) put_back();
  scheduler_.push(m.waiting(id), loop_->now());
}

void StreamLink::let_go(MessageId id) {
  const auto it = messages_.find(id);
  if (it == messages_.end()) return;
  OutMessage& m = it->second.message;
  if (std::exchange(m.is_held, false)) queue(id, m);
  want_flush();
}

void StreamLink::hurry() {
  if (std::exchange(num_last_, 0) == 0) return;
  if (!outgoing_.empty()) put_back();
  for (auto& [id, queued] : messages_) {
    OutMessage& m = queued.message;
    if (!m.leaves_last) continue;
    const Waiting last = m.waiting(id);
    m.leaves_last = false;
    if (!m.is_held) scheduler_.move(last, m.priority, loop_->now());
  }
  want_flush();
}

size_t StreamLink::cancel(MessageId id) {
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

void StreamLink::hang_up() {
  if (is_lost_) return;
  stop_sending();
  stream_->hang_up();
}

bool StreamLink::is_drained() const {
  if (is_lost_) return true;
  if (!can_send_ && !half_closed_) return true;
  return scheduler_.is_empty() && outgoing_.empty() && stream_->is_drained();
}

void StreamLink::finish() {
  if (!can_send_ || finishing_) return;
  OutMessage goodbye;
  goodbye.header.kind = FrameKind::kGoodbye;
  goodbye.priority = kLastPriority;
  send(std::move(goodbye));
  finishing_ = true;
}

void StreamLink::close() {
  if (stream_ == nullptr) return;
  is_lost_ = true;
  receiver_.stop();
  can_send_ = false;
  if (uplink_ != nullptr) uplink_->remove(this);
  loop_->forget_flush(this);
  flush_wanted_ = false;
  stream_.reset();
  messages_.clear();
  outgoing_.clear();
  sent_.clear();
}

void StreamLink::want_flush() {
  if (!std::exchange(flush_wanted_, true)) loop_->request_flush(this);
}

bool StreamLink::is_ordered() const {
  return uplink_ != nullptr && uplink_->is_ordered();
}

void StreamLink::flush() {
  flush_wanted_ = false;
  if (can_send_ && !waits_for_room_) {
    if (is_ordered()) {
      if (!outgoing_.empty() || !scheduler_.is_empty())
        ask_uplink();
      else
        end_if_finished();
    } else {
      write_some(whole_turn());
    }
  }
  // on_sent may queue further messages, for which the loop runs again.
  while (!sent_.is_empty()) sent_.tell();
}

void StreamLink::on_writable() {
  if (can_send_ && !is_ordered()) {
    write_some(whole_turn());
  } else {
    set_waiting(false);
    if (can_send_) ask_uplink();
  }
  if (!sent_.is_empty()) want_flush();
}

// The uplink sees the begun chunk and the scheduler, but not chosen chunks in between.
// A chosen chunk that has not begun would stay there forever. So it goes back first.
void StreamLink::ask_uplink() {
  put_back();
  uplink_->ask();
}

void StreamLink::set_waiting(bool waits) {
  if (std::exchange(waits_for_room_, waits) != waits) stream_->wait_for_room(waits);
}

// ---- sending ----

StreamLink::Turn StreamLink::whole_turn() {
  return {kTurnBytes, kGatherChunks, std::numeric_limits<size_t>::max()};
}

size_t StreamLink::outstanding() const {
  return stream_ == nullptr ? 0 : stream_->unacknowledged().value_or(0);
}

size_t StreamLink::write_chunk(size_t most) {
  put_back();
  return write_some({1, 1, most});
}

size_t StreamLink::write_many() {
  return write_some(whole_turn());
}

// Returns chosen chunks that have not begun to the scheduler, because another message
// may go first.
void StreamLink::put_back() {
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
bool StreamLink::is_lent(const OutMessage& m, size_t bytes) const {
  const LeaseGrantor* grantor = stream_->grantor();
  return grantor != nullptr && m.data != nullptr && grantor->takes(bytes);
}

void StreamLink::begin_with(Prefix& prefix, const OutMessage& m, const Chunk& chunk,
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
std::optional<uint8_t> StreamLink::lease(const OutMessage& m, const Chunk& chunk) {
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
bool StreamLink::gather(const Turn& turn, size_t* leased) {
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

// Returns the number of written bytes.
size_t StreamLink::write_some(const Turn& turn) {
  size_t total = 0;
  set_waiting(write_turn(turn, &total));
  if (total > 0) stream_->push(urgency_);
  if (outgoing_.empty()) urgency_ = Urgency::kNone;
  return total;
}

// Writes until the stream is full, the turn is used up or nothing is left. Returns true
// if the link must be told of room.
bool StreamLink::write_turn(const Turn& turn, size_t* total) {
  while (!outgoing_.empty() || !scheduler_.is_empty()) {
    // A turn of one chunk is complete; the uplink knows of the rest.
    if (*total >= turn.bytes) return turn.chunks > 1;
    const size_t before = *total;
    const bool goes_on = gather(turn, total);
    if (outgoing_.empty()) return !goes_on;
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
    if (!written) {
      // The peer may have sent all that is needed before it ended. Only reading shows
      // that, so the link is not lost yet.
      stop_sending();
      return false;
    }
    if (*total - before >= kWakeBytes) stream_->push_at_once(urgency_);
    *total += *written;
    if (*written == 0) return true;
    advance(*written);
    if (turn.chunks == 1 && *written < offered) return true;
  }
  end_if_finished();
  return false;
}

void StreamLink::end_if_finished() {
  if (!finishing_ || !can_send_) return;
  half_closed_ = true;
  stop_sending();
  stream_->end_sending();
}

void StreamLink::advance(size_t written) {
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

void StreamLink::release(MessageId id, size_t dropped) {
  trace_.on_gone(id, dropped);
  const auto it = messages_.find(id);
  sent_.add(it->second.message);
  messages_.erase(it);
  if (!sent_.is_empty()) want_flush();
}

// ---- the end ----

void StreamLink::on_readable() {
  if (const auto why = receiver_.read_some()) lose(*why);
}

// Drops all queued and all later messages. Their owners are notified as if they were
// sent.
void StreamLink::stop_sending() {
  can_send_ = false;
  outgoing_.clear();
  scheduler_.clear();
  for (auto& [id, queued] : messages_) sent_.add(queued.message);
  messages_.clear();
  trace_.on_lost();
  if (!sent_.is_empty()) want_flush();
}

void StreamLink::lose(const Status& why) {
  if (std::exchange(is_lost_, true)) return;
  receiver_.stop();
  // First of all the peer must notice, because the handler may destroy this object.
  stream_->end();
  stop_sending();
  handler_->on_link_lost(peer_, why);
}

}  // namespace aikido::transport

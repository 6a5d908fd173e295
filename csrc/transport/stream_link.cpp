// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/stream_link.h"

#include <utility>

namespace aikido::transport {

StreamLink::StreamLink(EventLoop* loop, Uplink* uplink,
                       std::unique_ptr<ByteStream> stream, Lane lane, Rank peer,
                       size_t chunk_bytes, LinkHandler* handler)
    : loop_(loop),
      stream_(std::move(stream)),
      uplink_(lane == Lane::kBulk && stream_->unacknowledged() ? uplink : nullptr),
      peer_(peer),
      handler_(handler),
      sender_(loop, stream_.get(), handler, chunk_bytes,
              lane == Lane::kBulk ? &uplink->counters() : nullptr),
      receiver_(stream_.get(), lane, peer, handler) {
  if (uplink_ != nullptr) uplink_->add(this);
  stream_->start(this);
}

StreamLink::~StreamLink() {
  close();
  loop_->forget_flush(this);
}

MessageId StreamLink::send(OutMessage&& message) {
  const MessageId id =
      can_send_ ? sender_.add(std::move(message)) : sender_.drop(message);
  want_flush();
  return id;
}

bool StreamLink::send_at_once(const OutMessage& message) {
  return can_send_ && sender_.send_at_once(message);
}

void StreamLink::let_go(MessageId id) {
  if (sender_.let_go(id)) want_flush();
}

void StreamLink::hurry() {
  if (sender_.hurry()) want_flush();
}

size_t StreamLink::cancel(MessageId id) {
  const size_t dropped = sender_.cancel(id);
  if (sender_.has_sent()) want_flush();
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
  return sender_.is_empty() && stream_->is_drained();
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
  sender_.forget();
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
      if (sender_.is_empty())
        end_if_finished();
      else
        ask_uplink();
    } else {
      write_some(FrameSender::whole_turn());
    }
  }
  // on_sent may queue further messages, for which the loop runs again.
  sender_.tell();
}

void StreamLink::on_writable() {
  if (can_send_ && !is_ordered()) {
    write_some(FrameSender::whole_turn());
  } else {
    set_waiting(false);
    if (can_send_) ask_uplink();
  }
  if (sender_.has_sent()) want_flush();
}

// The uplink sees the begun chunk and the scheduler, but not chosen chunks in between.
// A chosen chunk that has not begun would stay there forever. So it goes back first.
void StreamLink::ask_uplink() {
  sender_.put_back();
  uplink_->ask();
}

void StreamLink::set_waiting(bool waits) {
  if (std::exchange(waits_for_room_, waits) != waits) stream_->wait_for_room(waits);
}

// ---- sending ----

size_t StreamLink::outstanding() const {
  return stream_ == nullptr ? 0 : stream_->unacknowledged().value_or(0);
}

size_t StreamLink::write_chunk(size_t most) {
  sender_.put_back();
  return write_some(FrameSender::one_chunk(most));
}

size_t StreamLink::write_many() {
  return write_some(FrameSender::whole_turn());
}

// Returns the number of written bytes.
size_t StreamLink::write_some(const FrameSender::Turn& turn) {
  const FrameSender::Written written = sender_.write(turn);
  if (written.end == FrameSender::End::kBroken) {
    // The peer may have sent all that is needed before it ended. Only reading shows
    // that, so the link is not lost yet.
    stop_sending();
  } else if (written.end == FrameSender::End::kAllWritten) {
    end_if_finished();
  }
  set_waiting(written.end == FrameSender::End::kWaits);
  sender_.push(written.bytes);
  if (sender_.has_sent()) want_flush();
  return written.bytes;
}

void StreamLink::end_if_finished() {
  if (!finishing_ || !can_send_) return;
  half_closed_ = true;
  stop_sending();
  stream_->end_sending();
}

// ---- the end ----

void StreamLink::on_readable() {
  if (const auto why = receiver_.read_some()) lose(*why);
}

// Drops all queued and all later messages. Their owners are notified as if they were
// sent.
void StreamLink::stop_sending() {
  can_send_ = false;
  sender_.drop_all();
  if (sender_.has_sent()) want_flush();
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

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One lane of a Link: frames over a byte stream. FrameSender and FrameReceiver are its
// two directions. The link decides when to write, in turns of the uplink if there are
// some, and acts on the end of the stream. Progress thread only.

#include <memory>
#include <utility>

#include "transport/byte_stream.h"
#include "transport/frame_receiver.h"
#include "transport/frame_sender.h"
#include "transport/link.h"
#include "transport/loop/event_loop.h"
#include "transport/schedule/uplink.h"
#include "transport/send_trace.h"

namespace aikido::transport {

class StreamLink final : public Link,
                         private StreamHandler,
                         private Flushable,
                         private Uplink::Sender {
 public:
  // Takes a stream after its handshake, and starts it. `loop`, `uplink` and `handler`
  // must outlive the link. `chunk_bytes`: the longest payload of a frame that is sent.
  // Bulk data that leaves this host asks `uplink` for its turns.
  StreamLink(EventLoop* loop, Uplink* uplink, std::unique_ptr<ByteStream> stream,
             Lane lane, Rank peer, size_t chunk_bytes, LinkHandler* handler);
  ~StreamLink() override;

  // Traces all later messages with `trace`.
  void trace(SendTrace trace) { sender_.trace(std::move(trace)); }

  MessageId send(OutMessage&& message) override;
  bool send_at_once(const OutMessage& message) override;
  void let_go(MessageId id) override;
  void hurry() override;
  size_t cancel(MessageId id) override;
  bool reads_our_memory() const override {
    return stream_ != nullptr && stream_->grantor() != nullptr;
  }
  const FrameHeader* incoming() const override { return receiver_.incoming(); }
  size_t num_received() const override { return receiver_.num_received(); }
  void drop_incoming() override { receiver_.drop_incoming(); }
  Buffer keep_incoming() override { return receiver_.keep_incoming(); }
  void hang_up() override;
  bool is_drained() const override;
  void finish() override;
  void close() override;

 private:
  void on_readable() override;
  void on_writable() override;
  WakePolicy wake_policy() const override { return handler_->wake_policy(peer_); }
  void flush() override;
  bool is_ordered() const;
  void set_waiting(bool waits);
  void want_flush();

  // Uplink::Sender
  Scheduler& scheduler() override { return sender_.scheduler(); }
  bool has_begun() const override { return sender_.has_begun(); }
  bool is_blocked() const override { return waits_for_room_ || !can_send_; }
  size_t outstanding() const override;
  size_t segment_bytes() const override { return stream_->segment_bytes(); }
  size_t write_chunk(size_t most) override;
  size_t write_many() override;

  size_t write_some(const FrameSender::Turn& turn);
  void ask_uplink();
  void end_if_finished();
  void stop_sending();
  void lose(const Status& why);

  EventLoop* loop_;
  std::unique_ptr<ByteStream> stream_;  // null: closed
  Uplink* uplink_;                      // null: not part of an uplink
  Rank peer_;
  LinkHandler* handler_;
  bool flush_wanted_ = false;
  bool is_lost_ = false;
  bool can_send_ = true;  // false: messages count as sent at once
  bool waits_for_room_ = false;
  bool finishing_ = false;  // a goodbye is queued
  bool half_closed_ = false;
  FrameSender sender_;
  FrameReceiver receiver_;
};

}  // namespace aikido::transport

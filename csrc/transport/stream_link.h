// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One lane of a Link: frames over a byte stream. Writes gather several chunks at a time
// from the memory of their owners. FrameReceiver reads. Progress thread only.

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/recycler.h"
#include "transport/byte_stream.h"
#include "transport/frame_receiver.h"
#include "transport/link.h"
#include "transport/loop/event_loop.h"
#include "transport/schedule/scheduler.h"
#include "transport/schedule/uplink.h"
#include "transport/send_trace.h"
#include "transport/sent_messages.h"

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
  void trace(SendTrace trace) { trace_ = std::move(trace); }

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
  // Header and extension of a frame as sent.
  struct Prefix {
    std::array<std::byte, kHeaderBytes + kMaxExtensionBytes> data;
    size_t bytes = 0;
  };
  // Chunk on its way into the stream: header and extension copied, payload in place.
  struct Outgoing {
    Chunk chunk;
    Priority priority = 0;
    Prefix prefix;
    const std::byte* payload = nullptr;  // part that is not in a block
    size_t payload_bytes = 0;
    size_t sent = 0;               // of prefix and payload together
    std::vector<std::byte> aside;  // payload of a cancelled message
  };
  struct Queued {
    OutMessage message;
    size_t in_flight = 0;     // chunks of it in outgoing_
    bool is_through = false;  // the scheduler has no part of it
  };
  // Idle memory for messages and chunks.
  static constexpr size_t kMaxIdleBytes = 16 << 10;

  void on_readable() override;
  void on_writable() override;
  WakePolicy wake_policy() const override { return handler_->wake_policy(peer_); }
  void flush() override;
  bool is_ordered() const;
  void set_waiting(bool waits);
  void queue(MessageId id, const OutMessage& m);
  void want_flush();

  // Limits of one turn of writes.
  struct Turn {
    size_t bytes;
    size_t chunks;       // in one write
    size_t chunk_bytes;  // most in each
  };
  static Turn whole_turn();

  // Uplink::Sender
  Scheduler& scheduler() override { return scheduler_; }
  bool has_begun() const override {
    return !outgoing_.empty() && outgoing_.front().sent > 0;
  }
  bool is_blocked() const override { return waits_for_room_ || !can_send_; }
  size_t outstanding() const override;
  size_t segment_bytes() const override { return stream_->segment_bytes(); }
  size_t write_chunk(size_t most) override;
  size_t write_many() override;

  size_t write_some(const Turn& turn);
  bool write_turn(const Turn& turn, size_t* total);
  bool gather(const Turn& turn, size_t* leased);
  std::optional<uint8_t> lease(const OutMessage& m, const Chunk& chunk);
  bool is_lent(const OutMessage& m, size_t bytes) const;
  void begin_with(Prefix& prefix, const OutMessage& m, const Chunk& chunk,
                  uint8_t block) const;
  void put_back();
  void ask_uplink();
  void end_if_finished();
  void advance(size_t written);
  void release(MessageId id, size_t dropped);

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

  // Sending.
  Scheduler scheduler_;
  MessageId next_id_ = 1;
  Recycler recycler_{kMaxIdleBytes};
  RecycledHashMap<MessageId, Queued> messages_{recycler_};
  size_t num_last_ = 0;  // messages with leaves_last since hurry()
  RecycledDeque<Outgoing> outgoing_{recycler_};
  size_t outgoing_bytes_ = 0;
  Urgency urgency_ = Urgency::kNone;  // highest in outgoing_, and of this turn
  SentMessages sent_;
  bool finishing_ = false;
  bool half_closed_ = false;
  SendTrace trace_;

  FrameReceiver receiver_;
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Sending direction of one lane: messages that wait for their turn, and the chunks of
// them that are on their way into the byte stream. Writes gather several chunks at a
// time from the memory of their owners. It writes only when it is told to; StreamLink
// decides when. Progress thread only.
//
// A message goes this way, and back from outgoing_ if a more urgent one comes:
//
//   held --let_go()--> in the scheduler <--> outgoing_ --> written, then sent_
//
// Its owner is notified by tell().

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/recycler.h"
#include "transport/byte_stream.h"
#include "transport/frame.h"
#include "transport/link.h"
#include "transport/loop/event_loop.h"
#include "transport/schedule/scheduler.h"
#include "transport/schedule/send_counters.h"
#include "transport/send_trace.h"
#include "transport/sent_messages.h"

namespace aikido::transport {

class FrameSender {
 public:
  // Limits of one turn of writes.
  struct Turn {
    size_t bytes;
    size_t chunks;       // in one write
    size_t chunk_bytes;  // most in each
  };
  // As much as one link may write before other links continue.
  static Turn whole_turn();
  // A single chunk of at most `most` bytes.
  static Turn one_chunk(size_t most) { return {1, 1, most}; }

  // Why a write has ended: it goes on when the stream reports room, the turn is used
  // up, nothing is left, or the stream takes no more.
  enum class End { kWaits, kTurnOver, kAllWritten, kBroken };
  struct Written {
    size_t bytes = 0;
    End end = End::kTurnOver;
  };

  // `loop` and `handler` must outlive this object, and `stream` all calls but cancel(),
  // drop() and forget(). `chunk_bytes`: the longest payload of a frame. `counters` may
  // be null, and must outlive this object.
  FrameSender(EventLoop* loop, ByteStream* stream, LinkHandler* handler,
              size_t chunk_bytes, SendCounters* counters)
      : loop_(loop),
        stream_(stream),
        handler_(handler),
        scheduler_(chunk_bytes, counters) {}

  // Traces all later messages with `trace`.
  void trace(SendTrace trace) { trace_ = std::move(trace); }

  // Takes a message. Nothing is written yet.
  MessageId add(OutMessage&& message);
  // Counts a message as sent, without writing it.
  MessageId drop(OutMessage& message);
  // See Link. let_go() and hurry() return true if a write may be due.
  bool send_at_once(const OutMessage& message);
  bool let_go(MessageId id);
  bool hurry();
  size_t cancel(MessageId id);

  // Writes until the stream is full, the turn is used up or nothing is left. push()
  // follows.
  Written write(const Turn& turn);
  // Ends a turn of writes with `bytes` written.
  void push(size_t bytes);
  // Returns chosen chunks that have not begun to the scheduler, because another message
  // may go first.
  void put_back();
  // Counts all messages as sent, without writing them.
  void drop_all();
  // Forgets all messages, without notification.
  void forget();

  // True if owners wait for tell().
  bool has_sent() const { return !sent_.is_empty(); }
  // Notifies the owners of sent messages, and of those that follow from that.
  void tell() {
    while (!sent_.is_empty()) sent_.tell();
  }
  // Nothing is left to write.
  bool is_empty() const { return scheduler_.is_empty() && outgoing_.empty(); }
  // A chunk has begun, and its rest is not written yet.
  bool has_begun() const { return !outgoing_.empty() && outgoing_.front().sent > 0; }
  Scheduler& scheduler() { return scheduler_; }

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

  void queue(MessageId id, const OutMessage& m);
  bool gather(const Turn& turn, size_t* leased);
  std::optional<uint8_t> lease(const OutMessage& m, const Chunk& chunk);
  bool is_lent(const OutMessage& m, size_t bytes) const;
  void begin_with(Prefix& prefix, const OutMessage& m, const Chunk& chunk,
                  uint8_t block) const;
  void advance(size_t written);
  void release(MessageId id, size_t dropped);

  EventLoop* loop_;  // for the time of its turn
  ByteStream* stream_;
  LinkHandler* handler_;
  Scheduler scheduler_;
  MessageId next_id_ = 1;
  Recycler recycler_{kMaxIdleBytes};
  RecycledHashMap<MessageId, Queued> messages_{recycler_};
  size_t num_last_ = 0;  // messages with leaves_last since hurry()
  RecycledDeque<Outgoing> outgoing_{recycler_};
  size_t outgoing_bytes_ = 0;
  Urgency urgency_ = Urgency::kNone;  // highest in outgoing_, and of this turn
  SentMessages sent_;
  SendTrace trace_;
};

}  // namespace aikido::transport

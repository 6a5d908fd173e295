// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Connection to one peer, as the layers above see it. All calls and callbacks are on
// the progress thread. Callbacks never run inside send() or cancel().

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/buffer_pool.h"
#include "base/status.h"
#include "base/types.h"
#include "transport/frame.h"
#include "transport/loop/wake_policy.h"
#include "transport/schedule/message_id.h"

namespace aikido::transport {

// Owner of the memory of a message. The link keeps the owner alive until the message is
// sent.
class SendOwner {
 public:
  virtual ~SendOwner() = default;
  // The kernel has the last byte, or the link is gone. `token` is from OutMessage.
  virtual void on_sent(uint32_t token) = 0;
};

struct OutMessage {
  // The sender sets kind, shard, epoch, tag, seq, offset (of the first byte) and
  // total_bytes. The link advances the offset and fills in the rest.
  FrameHeader header;
  std::array<std::byte, kMaxExtensionBytes>
      extension{};  // goes with the first chunk only
  uint8_t extension_bytes = 0;
  const std::byte* data = nullptr;  // must not change before on_sent
  size_t bytes = 0;
  size_t chunk_bytes = 0;  // longest chunk; 0: the link's
  Priority priority = 0;
  // Below all other messages of its priority until Link::hurry(). A message of
  // kControlPriority or kLastPriority keeps its place.
  bool leaves_last = false;
  // Number of a strict collective. At equal priority the lowest number goes first. 0:
  // no such number; goes behind all messages that were sent before.
  uint64_t turn = 0;
  bool is_held = false;  // waits until let_go()
  Urgency urgency = Urgency::kServed;
  // Number of members that get the same bytes of this kind, shard and offset from the
  // owner.
  size_t num_receivers = 1;
  uint32_t edition = 0;  // bytes of another edition of that kind and shard differ
  std::shared_ptr<SendOwner> owner;  // null: no notification
  uint32_t token = 0;

  Waiting waiting(MessageId id) const {
    const bool is_lower =
        leaves_last && priority > kLastPriority && priority < kControlPriority;
    return {id, turn, is_lower ? priority - 1 : priority, bytes, chunk_bytes};
  }
};

// Events that a link reports to the group above. `from` is the peer of the link.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  // A frame begins. Returns the place for its payload (payload_bytes long, valid until
  // on_frame), or nullptr to discard the payload (on_frame still follows). Failure: the
  // peer broke the protocol, and the link is lost for that reason.
  virtual Result<std::byte*> on_frame_begin(Rank from, const FrameHeader& header,
                                            std::span<const std::byte> extension) = 0;
  // The payload is complete.
  virtual void on_frame(Rank from, const FrameHeader& header) = 0;
  // The link is down. No other call follows. Called once, unless close() came first.
  virtual void on_link_lost(Rank from, const Status& why) = 0;
  // Highest collective called here, for the `called` field of outgoing frames.
  virtual uint64_t called() const = 0;
  // Value of the `acked` field of outgoing frames.
  virtual int32_t acked() const = 0;
  // Urgency of the data of that peer.
  virtual WakePolicy wake_policy(Rank from) const = 0;
};

class Link {
 public:
  virtual ~Link() = default;
  // Queues a message. Returns its id for cancel().
  virtual MessageId send(OutMessage&& message) = 0;
  // Sends the whole message now instead of at the end of the turn, if nothing is ahead
  // of it and the peer reads the memory of this process. Its owner is not notified.
  // False: nothing was done.
  virtual bool send_at_once(const OutMessage&) { return false; }
  // Queues a held message now. Does nothing if the message was cancelled.
  virtual void let_go(MessageId id) = 0;
  // Messages with leaves_last have their normal priority from now on. Each goes before
  // messages of that priority that were sent later.
  virtual void hurry() = 0;
  // Drops the bytes of a message that the kernel does not have yet. The rest of a chunk
  // that has begun is copied aside and still sent. From now on the memory of the
  // message is not read; on_sent comes soon. Returns the number of dropped bytes.
  virtual size_t cancel(MessageId id) = 0;
  // Large payloads lie in shared memory where the peer reads them (shm_leases.h).
  virtual bool reads_our_memory() const { return false; }
  // Frame whose payload is being received; null between frames.
  virtual const FrameHeader* incoming() const = 0;
  // Received bytes of that payload; 0 between frames.
  virtual size_t num_received() const = 0;
  // Discards the rest of that payload. Its memory is not touched any more.
  virtual void drop_incoming() = 0;
  // Payload of the frame that begins, if the payload can stay in its block. Empty: it
  // cannot. Only within on_frame_begin, which then returns its data().
  virtual Buffer keep_incoming() { return {}; }
  // Sends no more. Frames that were received already are still reported, then the link
  // is lost.
  virtual void hang_up() = 0;
  // All queued bytes have left this process and reached the peer's kernel.
  virtual bool is_drained() const = 0;
  // Says goodbye behind the queued messages and closes its own direction. Later bulk
  // data counts as sent at once and is dropped, as on a lost link.
  virtual void finish() = 0;
  // Cuts the connection at once. Frees all memory, and calls neither handler nor
  // owners.
  virtual void close() = 0;
};

}  // namespace aikido::transport

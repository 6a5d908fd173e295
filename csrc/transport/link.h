// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One connection to one peer, as the parts above see it. All calls and callbacks on the
// progress thread. Callbacks never run inside send() or cancel().

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/buffer_pool.h"
#include "base/status.h"
#include "base/types.h"
#include "transport/frame.h"
#include "transport/message_id.h"
#include "transport/need.h"

namespace aikido::transport {

// Whoever owns the memory of a message. The link keeps it alive until the message is
// through.
class SendOwner {
 public:
  virtual ~SendOwner() = default;
  // The last byte is with the kernel, or the link is gone. `token` as given in
  // OutMessage.
  virtual void on_sent(uint32_t token) = 0;
};

struct OutMessage {
  // kind, shard, epoch, tag, seq; offset (of the first byte) and total_bytes are set by
  // the sender, the link counts on from there and fills in the rest.
  FrameHeader header;
  std::array<std::byte, kMaxExtensionBytes>
      extension{};  // goes with the first chunk only
  uint8_t extension_bytes = 0;
  const std::byte* data = nullptr;  // must stay as it is until on_sent
  size_t bytes = 0;
  size_t chunk_bytes = 0;  // of a chunk at most; 0: as the link has it
  Priority priority = 0;
  // Below all others of its priority until Link::hurry(). A message of kControlPriority
  // or kLastPriority stays where it is.
  bool leaves_last = false;
  // Number of a strict collective: of equal priority the lowest first. 0: of none, and
  // behind all that were sent before.
  uint64_t turn = 0;
  bool is_held = false;  // stays until let_go()
  Haste haste = Haste::kServed;
  // So many members get the same bytes of this kind, shard and offset from the owner.
  size_t num_receivers = 1;
  std::shared_ptr<SendOwner> owner;  // may be null: nobody wants to know
  uint32_t token = 0;

  Waiting waiting(MessageId id) const {
    const bool is_lower =
        leaves_last && priority > kLastPriority && priority < kControlPriority;
    return {id, turn, is_lower ? priority - 1 : priority, bytes, chunk_bytes};
  }
};

// What a link tells the group above. `from` is the peer of the link.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  // A frame begins. Returns where its payload goes (payload_bytes long, valid until
  // on_frame), or nullptr to throw the payload away (on_frame still follows). A failed
  // Status: the peer broke the protocol, and the link is lost for that reason.
  virtual Result<std::byte*> on_frame_begin(Rank from, const FrameHeader& header,
                                            std::span<const std::byte> extension) = 0;
  // The payload is complete.
  virtual void on_frame(Rank from, const FrameHeader& header) = 0;
  // The link is down; nothing follows. Called once, unless close() came first.
  virtual void on_link_lost(Rank from, const Status& why) = 0;
  // Highest collective called here, for the `called` field of outgoing frames.
  virtual uint64_t called() const = 0;
  // The same for their `settled` field.
  virtual int32_t settled() const = 0;
  // What comes from that peer is needed here, and how soon.
  virtual Need need(Rank from) const = 0;
};

class Link {
 public:
  virtual ~Link() = default;
  // Queues a message. Returns its id for cancel().
  virtual MessageId send(OutMessage&& message) = 0;
  // Sends it whole now, and not at the end of the turn, if nothing is ahead of it and
  // the peer reads our memory; its owner is not told. False: nothing was done.
  virtual bool send_at_once(const OutMessage&) { return false; }
  // A message that was held is queued now. Nothing if it was cancelled meanwhile.
  virtual void let_go(MessageId id) = 0;
  // The messages that were to leave last have their own priority from now on. Each goes
  // before those of this priority that were sent later.
  virtual void hurry() = 0;
  // Drops what has not been handed to the kernel of a message, except the rest of a
  // chunk that has begun: that is copied aside. From here on the memory of the message
  // is no longer read; on_sent comes soon. Returns the bytes dropped.
  virtual size_t cancel(MessageId id) = 0;
  // Large payloads lie where the peer reads them, in memory that we share (loans.h).
  virtual bool reads_our_memory() const { return false; }
  // The frame whose payload is being received, null between frames.
  virtual const FrameHeader* incoming() const = 0;
  // Of its payload so many bytes are here; 0 between frames.
  virtual size_t num_received() const = 0;
  // Throws the rest of that payload away: the memory it was placed in is no longer
  // touched.
  virtual void drop_incoming() = 0;
  // The payload of the frame that begins, where it lies already and may be left; empty:
  // nowhere. Only within on_frame_begin, which then returns its data().
  virtual Buffer keep_incoming() { return {}; }
  // Sends no more. What the peer's bytes say that are here already is still told, then
  // the link is lost.
  virtual void hang_up() = 0;
  // Everything queued has left this process and reached the peer's kernel.
  virtual bool is_drained() const = 0;
  // Says goodbye after what is queued and closes its own direction. Bulk data that is
  // queued after that is through at once and goes nowhere, as on a link that is lost.
  virtual void finish() = 0;
  // Cuts the connection at once; frees all memory, calls neither handler nor owners.
  virtual void close() = 0;
};

}  // namespace aikido::transport

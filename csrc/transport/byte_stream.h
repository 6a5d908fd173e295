// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Ordered stream of bytes between two processes, in both directions, through a socket
// or shared memory. It knows no frames and never blocks. Progress thread only.

#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>

#include "base/copy.h"
#include "base/status.h"
#include "transport/loop/wake_policy.h"

namespace aikido::transport {

class LeaseHolder;
class LeaseGrantor;

// Events that a stream reports to the link above, never within a call of the link.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // Bytes or the end of the stream may be available. Called again until a read takes
  // less than it could.
  virtual void on_readable() = 0;
  // There may be room. Called again and again while the link waits for room.
  virtual void on_writable() = 0;
  // Urgency of the bytes that come from now on.
  virtual WakePolicy wake_policy() const = 0;
};

class ByteStream {
 public:
  // Closes the stream. The peer sees its end.
  virtual ~ByteStream() = default;
  // Called once, before everything else. `handler` outlives the stream.
  virtual void start(StreamHandler* handler) = 0;

  // Takes as many bytes as there is room for, from the first part on; 0: there is no
  // room. Failure: nothing can be sent any more, but received bytes can be read.
  virtual Result<size_t> write(std::span<const iovec> parts) = 0;
  // A turn of writes has ended. The peer may be woken, if the written bytes are urgent
  // enough.
  virtual void push(Urgency) {}
  // As push(), for a part of a turn whose rest takes longer than a wake-up.
  virtual void push_at_once(Urgency) {}
  // Sets whether on_writable() is called.
  virtual void wait_for_room(bool waits) = 0;
  // True if this process holds none of the written bytes any more.
  virtual bool is_drained() const = 0;
  // Number of written bytes that have not reached the peer's host. Empty: the peer is
  // on this host.
  virtual std::optional<size_t> unacknowledged() const { return std::nullopt; }
  // Payload of a full segment on this stream; 0 on this host.
  virtual size_t segment_bytes() const { return 0; }

  // Fills the parts with available bytes; 0: there are none. Failure: nothing more will
  // come; kPeerLost without a message: orderly end. `caching` is for the first part, if
  // this process copies it.
  virtual Result<size_t> read(std::span<const iovec> parts, Caching caching) = 0;

  // If the peer shares memory with this process, large payloads are passed in blocks
  // beside the stream (shm_leases.h). Null: all payloads go through the stream.
  virtual LeaseGrantor* grantor() { return nullptr; }
  virtual LeaseHolder* lease_holder() { return nullptr; }
  // Number of bytes that a write certainly takes, at the cost of a copy. 0: it is
  // unknown, or writing costs more.
  virtual size_t room() const { return 0; }

  // Ends the stream behind the written bytes.
  virtual void end_sending() = 0;
  // Ends both directions. Received bytes can still be read.
  virtual void hang_up() = 0;
  // As hang_up(), and the handler is not called any more.
  virtual void end() = 0;
};

}  // namespace aikido::transport

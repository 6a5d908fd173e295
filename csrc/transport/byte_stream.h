// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Bytes in order between two processes, in both directions: a socket, or memory that
// the two share. Knows no frames, never blocks. Progress thread only.

#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>

#include "base/copy.h"
#include "base/status.h"
#include "transport/need.h"

namespace aikido::transport {

class Borrower;
class Lender;

// What a stream tells the link above. Never within a call of the link.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // Bytes may be here, or the end. Comes again until a read takes less than it could.
  virtual void on_readable() = 0;
  // There may be room. Comes again and again while the link waits for room.
  virtual void on_writable() = 0;
  // What comes from now on is needed so soon.
  virtual Need need() const = 0;
};

class ByteStream {
 public:
  // Closes it: the peer sees the end.
  virtual ~ByteStream() = default;
  // Once, before anything else. `handler` outlives the stream.
  virtual void start(StreamHandler* handler) = 0;

  // Takes what there is room for, of the first part first; 0: there is none. A failed
  // Status: nothing can be sent any more, but what is here can be read.
  virtual Result<size_t> write(std::span<const iovec> parts) = 0;
  // A turn of writes is over: the peer may be woken up, if what was written is of such
  // haste.
  virtual void push(Haste) {}
  // The same, of a part of a turn whose rest takes longer than a wake-up.
  virtual void push_at_once(Haste) {}
  // Whether the handler is told of room.
  virtual void wait_for_room(bool waits) = 0;
  // What was written is out of this process's hands.
  virtual bool is_drained() const = 0;
  // So many bytes that were written have not reached the host of the peer. Empty: it is
  // on this one.
  virtual std::optional<size_t> unacknowledged() const { return std::nullopt; }
  // Payload of a full segment there; 0 on this host.
  virtual size_t segment_bytes() const { return 0; }

  // Fills the parts with what is here; 0: nothing. A failed Status: nothing more will
  // come; kPeerLost without a message: in order. `caching`: of the first part, where we
  // copy it ourselves.
  virtual Result<size_t> read(std::span<const iovec> parts, Caching caching) = 0;

  // Where the peer shares memory with us: large payloads go beside the bytes, in blocks
  // (loans.h). Null: all go with them.
  virtual Lender* lender() { return nullptr; }
  virtual Borrower* borrower() { return nullptr; }
  // So many bytes are taken by a write for sure, at the cost of copying them; 0: that
  // is not known, or writing costs more.
  virtual size_t room() const { return 0; }

  // Behind what was written comes the end.
  virtual void end_sending() = 0;
  // Both directions are over; what is here can still be read.
  virtual void hang_up() = 0;
  // hang_up(), and the handler is told nothing more.
  virtual void end() = 0;
};

}  // namespace aikido::transport

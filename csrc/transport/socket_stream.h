// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// ByteStream over a connected socket: TCP, or a Unix socket on one host. Writes and
// reads use the memory of the callers, so only the kernel copies large data.

#include <cstdint>
#include <optional>

#include "base/fd.h"
#include "transport/byte_stream.h"
#include "transport/frame.h"
#include "transport/loop/event_loop.h"
#include "transport/schedule/spaced_looks.h"
#include "transport/schedule/unsent_limit.h"

namespace aikido::transport {

class SocketStream final : public ByteStream, private FdHandler {
 public:
  // Takes a connected, non-blocking socket. `loop` outlives the stream.
  SocketStream(EventLoop* loop, Fd socket, Lane lane);
  ~SocketStream() override;

  void start(StreamHandler* handler) override;
  Result<size_t> write(std::span<const iovec> parts) override;
  void wait_for_room(bool waits) override;
  bool is_drained() const override;
  // For bulk data only; empty for control frames.
  std::optional<size_t> unacknowledged() const override;
  size_t segment_bytes() const override;
  Result<size_t> read(std::span<const iovec> parts, Caching caching) override;
  void end_sending() override;
  void hang_up() override;
  void end() override;

 private:
  void on_events(uint32_t events) override;
  void note_room();
  void note_taken(size_t written);

  EventLoop* loop_;
  Fd socket_;
  bool is_unix_;
  StreamHandler* handler_ = nullptr;
  uint32_t events_ = 0;                // 0: not added to the loop
  std::optional<UnsentLimit> unsent_;  // for bulk data between hosts
  bool ran_dry_ = false;               // since the socket was full
  SpacedLooks distance_looks_;         // Note [bbr between near hosts]
};

}  // namespace aikido::transport

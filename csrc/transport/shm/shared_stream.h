// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// ByteStream through shared memory. A sleeping process is woken by the wake-up flag of
// its loop, which arrives through a Unix socket beside the memory. Until the flag has
// arrived, a byte in that socket wakes the process. The socket closes when the process
// at its other end ends. While both are awake, no system call is made.

#include <memory>

#include "base/fd.h"
#include "transport/byte_stream.h"
#include "transport/loop/doorbell.h"
#include "transport/loop/event_loop.h"
#include "transport/shm/shared_memory.h"
#include "transport/shm/shm_buffer_pool.h"

namespace aikido::transport {

class SharedStream final : public ByteStream,
                           private FdHandler,
                           private Polled,
                           private Flushable {
 public:
  // Takes a connected, non-blocking Unix socket to the process that shares `memory`.
  // `shm_pool` has the blocks of this process, `blocks` those of the other; either may
  // be missing. `loop` and `shm_pool` outlive the stream.
  SharedStream(EventLoop* loop, Fd socket, SharedMemory memory,
               ShmBufferPool* shm_pool = nullptr, const Fd& blocks = {});
  ~SharedStream() override;

  void start(StreamHandler* handler) override;
  Result<size_t> write(std::span<const iovec> parts) override;
  void push(Urgency urgency) override;
  void push_at_once(Urgency urgency) override;
  void wait_for_room(bool waits) override { waits_for_room_ = waits; }
  // Always true: the peer can read written bytes even if this process ends.
  bool is_drained() const override { return true; }
  Result<size_t> read(std::span<const iovec> parts, Caching caching) override;
  LeaseGrantor* grantor() override { return grantor_.get(); }
  LeaseHolder* lease_holder() override { return lease_holder_.get(); }
  size_t room() const override { return writer_.room(); }
  void end_sending() override;
  void hang_up() override;
  void end() override;

 private:
  void on_events(uint32_t events) override;
  bool poll() override;
  bool rest() override;
  void flush() override;
  bool has_room() const;
  bool rest_for_room();
  void wake_writer();
  ssize_t take_bells();
  void drop_blocks();
  void ring_if_due();
  void ring_bell();
  void leave_loop();

  EventLoop* loop_;
  Fd socket_;
  Doorbell doorbell_;  // of the peer
  std::shared_ptr<SharedMemory> memory_;
  ShmBufferPool* shm_pool_;
  std::shared_ptr<LeaseGrantor> grantor_;      // null: this process leases no blocks
  std::shared_ptr<LeaseHolder> lease_holder_;  // null: the peer leases no blocks
  RingWriter writer_;
  RingReader reader_;
  StreamHandler* handler_ = nullptr;
  bool is_watched_ = false;  // the loop watches the socket
  bool is_polled_ = false;
  bool rests_ = false;
  bool has_gone_ = false;  // the peer has gone
  bool waits_for_room_ = false;
  bool is_bell_due_ = false;
  Urgency urgency_ = Urgency::kNone;  // urgency of the due wake-up
};

}  // namespace aikido::transport

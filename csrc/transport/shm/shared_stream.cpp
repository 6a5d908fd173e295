// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/shared_stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "transport/local_socket.h"

namespace aikido::transport {
namespace {

Status broken() {
  return {Code::kProtocol, "the peer has written nonsense into the shared memory"};
}

}  // namespace

SharedStream::SharedStream(EventLoop* loop, Fd socket, SharedMemory memory,
                           ShmBufferPool* shm_pool, const Fd& blocks)
    : loop_(loop),
      socket_(std::move(socket)),
      memory_(std::make_shared<SharedMemory>(std::move(memory))),
      shm_pool_(shm_pool),
      writer_(memory_->writer()),
      reader_(memory_->reader()) {
  // Both processes have mapped the memory, so the descriptor is not needed any more.
  memory_->fd().reset();
  if (shm_pool != nullptr) grantor_ = shm_pool->grant_to(memory_, pid_of_peer(socket_));
  if (!blocks.is_open()) return;
  // Without blocks the peer sends all payloads through the ring.
  auto lease_holder = LeaseHolder::open(blocks, memory_);
  if (!lease_holder) return;
  lease_holder_ = std::move(*lease_holder);
  lease_holder_->on_returned([this] { wake_writer(); });
}

SharedStream::~SharedStream() {
  drop_blocks();
  leave_loop();
  loop_->forget_flush(this);
}

void SharedStream::start(StreamHandler* handler) {
  handler_ = handler;
  loop_->add(socket_.get(), EPOLLIN, this);
  loop_->add_polled(this);
  is_watched_ = is_polled_ = true;
  // A new connection takes this byte and the descriptor at once. If it does not, bytes
  // wake this process instead.
  const std::byte bell{};
  send_with(socket_, {&bell, 1}, loop_->doorbell());
}

void SharedStream::leave_loop() {
  if (std::exchange(is_watched_, false)) loop_->remove(socket_.get(), this);
  if (std::exchange(is_polled_, false)) loop_->remove_polled(this);
}

Result<size_t> SharedStream::write(std::span<const iovec> parts) {
  if (has_gone_) return Status(Code::kPeerLost, "the other process is gone");
  const auto written = writer_.write(parts);
  if (written) return *written;
  // The ring cannot be used any more. Shutting down the socket tells the peer.
  hang_up();
  return broken();
}

// The wake-up is sent at the end of the turn, so several writes cause only one.
void SharedStream::push(Urgency urgency) {
  urgency_ = std::max(urgency_, urgency);
  if (!std::exchange(is_bell_due_, true)) loop_->request_flush(this);
}

void SharedStream::push_at_once(Urgency urgency) {
  urgency_ = std::max(urgency_, urgency);
  ring_if_due();
}

void SharedStream::flush() {
  is_bell_due_ = false;
  ring_if_due();
}

void SharedStream::ring_if_due() {
  const bool has_blocks = !grantor_ || grantor_->has_room();
  if (writer_.must_wake_reader(std::exchange(urgency_, Urgency::kNone), has_blocks))
    ring_bell();
}

Result<size_t> SharedStream::read(std::span<const iovec> parts, Caching caching) {
  // Checked before the read. If the peer is gone now, the bytes read below were its
  // last.
  const bool is_last = has_gone_ || reader_.is_at_end();
  const auto got = reader_.read(parts, caching);
  if (!got) return broken();
  if (*got == 0 && is_last) return Status(Code::kPeerLost, "");
  wake_writer();
  return *got;
}

bool SharedStream::has_room() const {
  return writer_.has_room() && (!grantor_ || grantor_->has_room());
}

bool SharedStream::rest_for_room() {
  writer_.rest();
  if (!has_room()) return true;
  writer_.wake();
  return false;
}

// The writer may wait for blocks as well as for bytes.
void SharedStream::wake_writer() {
  if ((!lease_holder_ || lease_holder_->has_room()) && reader_.must_wake_writer())
    ring_bell();
}

void SharedStream::end_sending() {
  writer_.end();
  flush();
}

void SharedStream::hang_up() {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

void SharedStream::end() {
  leave_loop();
  hang_up();
  drop_blocks();
}

// Ends all reading and leasing, even if the link object stays until its group ends.
// Blocks that receivers still hold are returned later.
void SharedStream::drop_blocks() {
  if (lease_holder_) lease_holder_->on_returned(nullptr);
  lease_holder_.reset();
  grantor_.reset();
  if (shm_pool_ != nullptr) shm_pool_->collect();
}

// If the socket is full, it contains enough wake-ups. If it is broken, the loop reports
// that.
void SharedStream::ring_bell() {
  if (doorbell_.is_there() && doorbell_.ring()) return;
  const char bell = 0;
  [[maybe_unused]] const auto n =
      ::send(socket_.get(), &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// The descriptor of the wake-up flag comes with the first byte.
ssize_t SharedStream::take_bells() {
  std::array<std::byte, 64> bells;
  if (doorbell_.is_there())
    return ::recv(socket_.get(), bells.data(), bells.size(), MSG_DONTWAIT);
  Fd passed;
  const ssize_t n = receive_with(socket_, bells, passed);
  if (passed.is_open()) doorbell_ = Doorbell(std::move(passed));
  return n;
}

// A byte only says that poll(), which follows in the same turn, has work.
void SharedStream::on_events(uint32_t) {
  const ssize_t n = take_bells();
  if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
  has_gone_ = true;
  is_watched_ = false;
  loop_->remove(socket_.get(), this);
}

bool SharedStream::poll() {
  if (std::exchange(rests_, false)) {
    reader_.wake();
    writer_.wake();
  }
  if (waits_for_room_ && (has_gone_ || has_room())) handler_->on_writable();
  if (!has_gone_ && !reader_.has_bytes() && !reader_.is_at_end()) return false;
  // Last, because the handler may end the use of this stream.
  handler_->on_readable();
  return true;
}

bool SharedStream::rest() {
  // A peer that is gone sends no wake-up, so the loop must go on polling.
  if (has_gone_) return false;
  rests_ = true;
  return reader_.rest(handler_->wake_policy()) && (!waits_for_room_ || rest_for_room());
}

}  // namespace aikido::transport

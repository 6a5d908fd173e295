// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shared_stream.h"

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
                           Outbox* outbox, const Fd& blocks)
    : loop_(loop),
      socket_(std::move(socket)),
      memory_(std::make_shared<SharedMemory>(std::move(memory))),
      outbox_(outbox),
      writer_(memory_->writer()),
      reader_(memory_->reader()) {
  memory_->fd().reset();
  if (outbox != nullptr) lender_ = outbox->lend_to(memory_, pid_of_peer(socket_));
  if (!blocks.is_open()) return;
  // Without it the peer sends everything with the bytes.
  auto borrower = Borrower::open(blocks, memory_);
  if (!borrower) return;
  borrower_ = std::move(*borrower);
  borrower_->on_returned([this] { wake_writer(); });
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
  // A new connection takes it at once, or we are woken up by bytes.
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
  // Nobody can go on with this ring, and the peer is to know.
  hang_up();
  return broken();
}

void SharedStream::push(Haste haste) {
  haste_ = std::max(haste_, haste);
  if (!std::exchange(is_bell_due_, true)) loop_->request_flush(this);
}

void SharedStream::push_at_once(Haste haste) {
  haste_ = std::max(haste_, haste);
  ring_if_due();
}

void SharedStream::flush() {
  is_bell_due_ = false;
  ring_if_due();
}

void SharedStream::ring_if_due() {
  const bool has_blocks = !lender_ || lender_->has_room();
  if (writer_.must_wake_reader(std::exchange(haste_, Haste::kNone), has_blocks))
    ring_bell();
}

Result<size_t> SharedStream::read(std::span<const iovec> parts, Caching caching) {
  // Asked first: a peer that is gone by now writes nothing behind what is read here.
  const bool is_last = has_gone_ || reader_.is_at_end();
  const auto got = reader_.read(parts, caching);
  if (!got) return broken();
  if (*got == 0 && is_last) return Status(Code::kPeerLost, "");
  wake_writer();
  return *got;
}

bool SharedStream::has_room() const {
  return writer_.has_room() && (!lender_ || lender_->has_room());
}

bool SharedStream::rest_for_room() {
  writer_.rest();
  if (!has_room()) return true;
  writer_.wake();
  return false;
}

// It may want blocks as well as bytes.
void SharedStream::wake_writer() {
  if ((!borrower_ || borrower_->has_room()) && reader_.must_wake_writer()) ring_bell();
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

// Nothing is read or lent any more, though the link may stay until its group goes. What
// is kept is given back all the same.
void SharedStream::drop_blocks() {
  if (borrower_) borrower_->on_returned(nullptr);
  borrower_.reset();
  lender_.reset();
  if (outbox_ != nullptr) outbox_->collect();
}

// A full socket is full of bells, and a broken one tells the loop.
void SharedStream::ring_bell() {
  if (doorbell_.is_there() && doorbell_.ring()) return;
  const char bell = 0;
  [[maybe_unused]] const auto n =
      ::send(socket_.get(), &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// With the first comes the doorbell.
ssize_t SharedStream::take_bells() {
  std::array<std::byte, 64> bells;
  if (doorbell_.is_there())
    return ::recv(socket_.get(), bells.data(), bells.size(), MSG_DONTWAIT);
  Fd passed;
  const ssize_t n = receive_with(socket_, bells, passed);
  if (passed.is_open()) doorbell_ = Doorbell(std::move(passed));
  return n;
}

// A bell says only that poll(), which follows in the same turn, has something to do.
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
  // Last: the handler may have done with us.
  handler_->on_readable();
  return true;
}

bool SharedStream::rest() {
  if (has_gone_) return false;
  rests_ = true;
  return reader_.rest(handler_->need()) && (!waits_for_room_ || rest_for_room());
}

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/socket_stream.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "transport/address.h"

namespace aikido::transport {
namespace {

// Note [send buffer on one host]
// The kernel's own choice is up to 4 MiB per connection. Between two processes of one
// host, this only means that bytes leave the cache before they are read. With it, four
// ranks on two cores spend 57 ms of processor time on an allreduce of 16 MiB. With this
// value they spend 33 ms.
constexpr int kLocalSendBufferBytes = 256 << 10;

// Note [send buffer between hosts]
// Between hosts the buffer must cover the bandwidth-delay product, which the kernel
// knows best. But unsent bytes beyond that only delay more urgent messages. So the
// unsent part is limited (unsent_limit.h).
void limit_unsent(const Fd& socket, size_t bytes) {
  const auto value = static_cast<int>(bytes);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, sizeof value);
}

bool is_unix(const Fd& socket) {
  SocketAddress own;
  own.length = sizeof own.storage;
  return ::getsockname(socket.get(), own.get(), &own.length) == 0 &&
         own.storage.ss_family == AF_UNIX;
}

// True if the socket leads to another host, or if that is unknown.
bool is_remote(const Fd& socket) {
  SocketAddress own, peer;
  own.length = peer.length = sizeof own.storage;
  if (::getsockname(socket.get(), own.get(), &own.length) != 0 ||
      ::getpeername(socket.get(), peer.get(), &peer.length) != 0)
    return true;
  return from_socket_address(own.storage).host !=
         from_socket_address(peer.storage).host;
}

// Note [bbr between near hosts]
// bbr sends at the rate that it has measured. A member that computes between two
// operations gives it nothing to measure. So an allreduce at 200 Mbit/s took 1.11 to
// 1.33 times as long as with cubic. bbr is made for paths that are long or lose
// packets, and stays in use on these. If the process may not choose cubic, the kernel's
// choice stays. The shortest round trip since the connection was made decides. A busy
// host lengthens the first ones, so the socket looks again before later writes. A look
// takes two system calls, so looks have a least distance and a number.
constexpr int kLooksAtDistance = 64;
constexpr Duration kBetweenLooks = std::chrono::milliseconds(5);

// False: bbr stays in use, because the peer has seemed to be far until now.
bool has_chosen_for_near_hosts(const Fd& socket) {
  constexpr uint32_t kNearUs = 5000;
  constexpr std::string_view kCubic = "cubic";
  char name[16] = {};
  socklen_t length = sizeof name;
  tcp_info info{};
  socklen_t info_length = sizeof info;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0 ||
      std::string_view(name) != "bbr" ||
      ::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &info_length) != 0)
    return true;
  if (info.tcpi_min_rtt >= kNearUs) return false;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kCubic.data(), kCubic.size());
  return true;
}

bool is_empty(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

}  // namespace

SocketStream::SocketStream(EventLoop* loop, Fd socket, Lane lane)
    : loop_(loop), socket_(std::move(socket)), is_unix_(is_unix(socket_)) {
  // Control frames are few and small; the kernel's choices suit them.
  if (lane != Lane::kBulk) return;
  if (!is_unix_ && is_remote(socket_)) {
    unsent_.emplace();
    limit_unsent(socket_, unsent_->bytes());
    if (!has_chosen_for_near_hosts(socket_))
      distance_looks_ = {kLooksAtDistance, kBetweenLooks, loop_->now()};
  } else {
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &kLocalSendBufferBytes,
                 sizeof kLocalSendBufferBytes);
  }
}

SocketStream::~SocketStream() {
  if (events_ != 0) loop_->remove(socket_.get(), this);
}

void SocketStream::start(StreamHandler* handler) {
  handler_ = handler;
  events_ = EPOLLIN;
  loop_->add(socket_.get(), events_, this);
}

void SocketStream::on_events(uint32_t events) {
  if (events & EPOLLOUT) {
    note_room();
    handler_->on_writable();
  }
  // The handler may have ended the stream, which sets events_ to 0.
  if (events_ != 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
    handler_->on_readable();
}

Result<size_t> SocketStream::write(std::span<const iovec> parts) {
  if (distance_looks_.take(loop_->now()) && has_chosen_for_near_hosts(socket_))
    distance_looks_.end();
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  while (true) {
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      note_taken(static_cast<size_t>(n));
      return static_cast<size_t>(n);
    }
    if (is_empty(errno)) return 0;
    if (errno != EINTR) return Status(Code::kPeerLost, describe_errno(errno));
  }
}

void SocketStream::wait_for_room(bool waits) {
  const uint32_t wanted = EPOLLIN | (waits ? uint32_t{EPOLLOUT} : 0u);
  if (events_ == 0 || wanted == events_) return;
  if (waits && unsent_) unsent_->on_full(loop_->now());
  events_ = wanted;
  loop_->modify(socket_.get(), events_, this);
}

// The socket was full and takes bytes again. Records if it had sent everything
// meanwhile.
void SocketStream::note_room() {
  int num_unsent = 0;
  ran_dry_ = unsent_ && ::ioctl(socket_.get(), SIOCOUTQNSD, &num_unsent) == 0 &&
             num_unsent == 0;
}

// Only bytes that a full socket takes show how fast it sends.
void SocketStream::note_taken(size_t written) {
  if (!unsent_ || (events_ & EPOLLOUT) == 0) return;
  const bool ran_dry = std::exchange(ran_dry_, false);
  if (const auto limit = unsent_->on_taken(written, ran_dry, loop_->now()))
    limit_unsent(socket_, *limit);
}

// True if the peer's kernel has all bytes. Between processes of one host it has them at
// once.
bool SocketStream::is_drained() const {
  if (is_unix_) return true;
  int unacknowledged = 0;
  return ::ioctl(socket_.get(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

Result<size_t> SocketStream::read(std::span<const iovec> parts, Caching) {
  while (true) {
    const ssize_t n =
        ::readv(socket_.get(), parts.data(), static_cast<int>(parts.size()));
    if (n > 0) return static_cast<size_t>(n);
    if (n == 0) return Status(Code::kPeerLost, "");
    if (is_empty(errno)) return 0;
    if (errno != EINTR) return Status(Code::kPeerLost, describe_errno(errno));
  }
}

std::optional<size_t> SocketStream::unacknowledged() const {
  if (!unsent_) return std::nullopt;
  int bytes = 0;
  return ::ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

size_t SocketStream::segment_bytes() const {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  const int got = ::getsockopt(socket_.get(), IPPROTO_TCP, TCP_MAXSEG, &bytes, &length);
  return got == 0 && bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

void SocketStream::end_sending() {
  ::shutdown(socket_.get(), SHUT_WR);
}

// Bytes in the kernel can still be read; the end of the stream follows them.
void SocketStream::hang_up() {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

void SocketStream::end() {
  if (std::exchange(events_, 0) != 0) loop_->remove(socket_.get(), this);
  hang_up();
}

}  // namespace aikido::transport

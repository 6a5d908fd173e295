// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

namespace aikido::transport {
namespace {

constexpr int kBacklog = 1024;

// Abstract name beside a TCP address, such as "\0aikido/127.0.0.1 40123". Only one
// listener in a network namespace can own the port, so the name is unique. Empty: the
// address is not numeric, or the name is too long.
std::optional<SocketAddress> beside(const Address& address) {
  if (!to_socket_address(address)) return std::nullopt;
  SocketAddress made;
  auto* name = reinterpret_cast<sockaddr_un*>(&made.storage);
  name->sun_family = AF_UNIX;
  const std::string text = "aikido/" + address.to_string();
  if (text.size() + 1 > sizeof name->sun_path) return std::nullopt;
  std::memcpy(name->sun_path + 1, text.data(), text.size());
  made.length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return made;
}

Fd make_socket() {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socket.close_in_children();
  // Credentials that the kernel recorded when the peer connected or listened.
  return socket;
}

std::optional<ucred> credentials_of_peer(const Fd& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return std::nullopt;
  return peer;
}

union Control {
  cmsghdr alignment;
  std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes;
};

}  // namespace

bool is_same_user(const Fd& socket) {
  const auto peer = credentials_of_peer(socket);
  return peer && peer->uid == ::geteuid();
}

int pid_of_peer(const Fd& socket) {
  const auto peer = credentials_of_peer(socket);
  return peer ? peer->pid : 0;
}

Fd listen_beside(const Address& address) {
  auto name = beside(address);
  if (!name) return Fd();
  Fd socket = make_socket();
  if (socket.is_open() && (::bind(socket.get(), name->get(), name->length) != 0 ||
                           ::listen(socket.get(), kBacklog) != 0))
    socket.reset();
  return socket;
}

// An abstract name can be taken by any process while no one listens there. The greeting
// contains the secret of the group. So the connection is closed unless the listener
// belongs to the same user.
Fd connect_beside(const Address& address) {
  auto name = beside(address);
  if (!name) return Fd();
  Fd socket = make_socket();
  if (socket.is_open() && (::connect(socket.get(), name->get(), name->length) != 0 ||
                           !is_same_user(socket)))
    socket.reset();
  return socket;
}

bool send_with(const Fd& socket, std::span<const std::byte> bytes, int passed) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control{};
  if (passed >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control.bytes;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof passed);
    std::memcpy(CMSG_DATA(header), &passed, sizeof passed);
  }
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

ssize_t receive_with(const Fd& socket, std::span<std::byte> into, Fd& passed) {
  iovec part{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control{};
  message.msg_control = &control;
  // Without the padding of CMSG_SPACE, which would leave room for a second descriptor.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const ssize_t n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    // Later descriptors replace earlier ones, and Fd closes the earlier one.
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    passed = Fd(fd);
  }
  return n;
}

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/store_end.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string>
#include <thread>

namespace aikido::adapter {
namespace {

// Pause between two checks.
constexpr Duration kPause = std::chrono::milliseconds(1);

// Port at the other end of a connection. 0: `fd` is no TCP connection.
uint16_t peer_port(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return 0;
  if (storage.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  if (storage.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return 0;
}

bool is_open(int fd) {
  char byte = 0;
  const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace

bool StoreEnd::has_come() const {
  std::error_code failed;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd", failed)) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd >= 0 && peer_port(fd) == port && is_open(fd)) return false;
  }
  return true;
}

void StoreEnd::wait(Duration limit) const {
  const SystemClock clock;
  const TimePoint end = clock.now() + limit;
  while (!has_come() && clock.now() < end) std::this_thread::sleep_for(kPause);
}

}  // namespace aikido::adapter

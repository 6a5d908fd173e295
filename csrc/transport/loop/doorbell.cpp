// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/doorbell.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace aikido::transport {
namespace {

// The descriptor comes from another process. A write to an arbitrary file could block
// or do harm, so only eventfds are accepted.
bool is_eventfd(int fd) {
  std::array<char, 64> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t n = ::readlink(link.c_str(), target.data(), target.size());
  return n > 0 && std::string_view(target.data(), static_cast<size_t>(n)) ==
                      "anon_inode:[eventfd]";
}

// The kernel assigns the lowest free number, so a low number means that many are left.
bool are_many_left(int fd) {
  rlimit most{};
  return ::getrlimit(RLIMIT_NOFILE, &most) == 0 &&
         static_cast<rlim_t>(fd) < most.rlim_cur / 2;
}

}  // namespace

Doorbell::Doorbell(Fd fd) {
  if (!fd.is_open() || !are_many_left(fd.get()) || !is_eventfd(fd.get())) return;
  // A write to a blocking eventfd with a full counter would stop the loop.
  if ((::fcntl(fd.get(), F_GETFL) & O_NONBLOCK) == 0) return;
  fd_ = std::move(fd);
  fd_.close_in_children();
}

bool Doorbell::ring() {
  const uint64_t one = 1;
  return ::write(fd_.get(), &one, sizeof one) == sizeof one;
}

}  // namespace aikido::transport

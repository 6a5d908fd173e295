// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/fd.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace aikido {
namespace {

// One bit for each descriptor of this process that a child must not keep. A child of a
// process with threads may do little between fork() and exec(): this much is safe.
constexpr size_t kMaxFds = 1 << 16;
constexpr size_t kWordBits = 64;
std::array<std::atomic<uint64_t>, kMaxFds / kWordBits> private_fds;
static_assert(std::atomic<uint64_t>::is_always_lock_free);

uint64_t bit(int fd) {
  return uint64_t{1} << (static_cast<size_t>(fd) % kWordBits);
}
std::atomic<uint64_t>& word(int fd) {
  return private_fds[static_cast<size_t>(fd) / kWordBits];
}

void close_all_in_child() {
  for (size_t w = 0; w < private_fds.size(); ++w) {
    const uint64_t bits = private_fds[w].exchange(0);
    for (size_t b = 0; bits >> b != 0; ++b) {
      if ((bits >> b & 1) != 0) ::close(static_cast<int>(w * kWordBits + b));
      if (b + 1 == kWordBits) break;
    }
  }
}

}  // namespace

void Fd::close_in_children() {
  [[maybe_unused]] static const int is_registered =
      ::pthread_atfork(nullptr, nullptr, &close_all_in_child);
  if (fd_ < 0 || static_cast<size_t>(fd_) >= kMaxFds) return;
  word(fd_).fetch_or(bit(fd_));
  is_private_ = true;
}

void Fd::reset() {
  if (fd_ < 0) return;
  const int fd = std::exchange(fd_, -1);
  // In a child the bit is gone, and the number may mean something else by now.
  const bool is_gone = std::exchange(is_private_, false) &&
                       (word(fd).fetch_and(~bit(fd)) & bit(fd)) == 0;
  if (!is_gone) ::close(fd);
}

}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Owner of one file descriptor: closes it when it goes. One thread at a time.

#include <unistd.h>

#include <utility>

namespace aikido {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        is_private_(std::exchange(other.is_private_, false)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      is_private_ = std::exchange(other.is_private_, false);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  // -1 when empty.
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void reset();

  // From now on a forked child has it closed at once (of the first 65536 descriptors).
  // A socket that a child of ours still had would look alive to its peer when we are
  // killed. An Fd that the child has a copy of does nothing there.
  void close_in_children();

 private:
  int fd_ = -1;
  bool is_private_ = false;
};

}  // namespace aikido

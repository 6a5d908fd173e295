// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Wake-up flag for the event loop of another process: an eventfd of that loop. This
// process has received a descriptor of it. Any thread.
//
// Note [eventfd instead of a socket]
// A byte in a socket must be read. The kernel also assumes that its writer will sleep
// soon. So it moves the reader to the writer's core, where the reader waits for the
// writer, even if another core is idle. An eventfd that is watched with edge triggering
// avoids both.

#include "base/fd.h"

namespace aikido::transport {

class Doorbell {
 public:
  Doorbell() = default;
  // Not there if `fd` cannot be written without waiting, or if this process has few
  // descriptors left, because connections need these more.
  explicit Doorbell(Fd fd);

  bool is_there() const { return fd_.is_open(); }
  // False: no process was woken.
  bool ring();

 private:
  Fd fd_;
};

}  // namespace aikido::transport

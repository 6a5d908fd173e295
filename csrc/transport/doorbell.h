// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Wakes up the event loop of another process: an eventfd of that loop, of which this
// process has got a descriptor. Any thread.
//
// Note [no byte through a socket]
// A byte must be read, and the kernel takes who writes one for somebody about to sleep:
// it moves the reader to the writer's core, where it waits until that is through, also
// where another core has nothing to do. An eventfd that is watched for its edges does
// neither.

#include "base/fd.h"

namespace aikido::transport {

class Doorbell {
 public:
  Doorbell() = default;
  // Not there: `fd` is nothing that can be rung without waiting, or this process has
  // few descriptors left, which connections need more.
  explicit Doorbell(Fd fd);

  bool is_there() const { return fd_.is_open(); }
  // False: nobody was woken up.
  bool ring();

 private:
  Fd fd_;
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What names and ranks the messages of a link. Plain values: any thread.

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/types.h"

namespace aikido::transport {

// Names a message inside one scheduler; never reused.
using MessageId = uint64_t;

// A message, as a scheduler queues it.
struct Waiting {
  MessageId id;
  uint64_t turn;
  Priority priority;
  size_t bytes;
  size_t most;  // in one chunk, if that is less than the scheduler has; 0: as it has
};

// Above every data transfer: control frames. Below: what ends a stream.
inline constexpr Priority kControlPriority = 1 << 30;
inline constexpr Priority kLastPriority = std::numeric_limits<Priority>::min();

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Name and rank of the messages of a link. Plain values: any thread.

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/types.h"

namespace aikido::transport {

// Names a message within one scheduler; never reused.
using MessageId = uint64_t;

// Message as a scheduler queues it.
struct Waiting {
  MessageId id;
  uint64_t turn;
  Priority priority;
  size_t bytes;
  size_t most;  // longest chunk, if the scheduler's is longer; 0: the scheduler's
};

// kControlPriority is above every data transfer, for control frames. kLastPriority is
// below, for the end of a stream.
inline constexpr Priority kControlPriority = 1 << 30;
inline constexpr Priority kLastPriority = std::numeric_limits<Priority>::min();

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What names and ranks the messages of a link. Plain values: any thread.

#include <cstdint>
#include <limits>

#include "base/types.h"

namespace aikido::transport {

// Names a message inside one scheduler; never reused.
using MessageId = uint64_t;

// Above every data transfer: control frames. Below: what ends a stream.
inline constexpr Priority kControlPriority = 1 << 30;
inline constexpr Priority kLastPriority = std::numeric_limits<Priority>::min();

}  // namespace aikido::transport

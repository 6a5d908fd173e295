// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Wake policy of a sleeping member for data from a link (`WakePolicy`), and urgency of
// data for its receiver (`Urgency`). Both matter for links through shared memory, where
// a wake-up costs more than a small message.

#include <cstdint>

namespace aikido::transport {

enum class WakePolicy : uint8_t {
  kNow,    // wakes for everything
  kNews,   // wakes, except for data that can wait for the next local call
  kLater,  // does not wake until data has come over another link
};

// Urgency in ascending order.
enum class Urgency : uint8_t {
  kNone,     // no use before the peer's next call
  kAwaited,  // for or about its call; not needed while it waits for others first
  kServed,   // others wait for the peer's action, even if it waits for other data
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How soon a member that sleeps needs what comes over a link, and how much somebody who
// sends it something wants it read. They matter for links through shared memory, where
// a wake-up costs more than a small message.

#include <cstdint>

namespace aikido::transport {

enum class Need : uint8_t {
  kNow,    // whatever comes
  kNews,   // but for what can wait for the next call here
  kLater,  // nothing, before something else has come over another link
};

// In ascending order.
enum class Haste : uint8_t {
  kNone,     // of no use before the peer's next call
  kAwaited,  // of its call, or about it: who awaits somebody else first can do without
  kServed,   // others wait for what the peer does about it, whatever it awaits itself
};

}  // namespace aikido::transport

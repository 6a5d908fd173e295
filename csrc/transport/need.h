// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How soon a member that sleeps needs what comes over a link. It matters for links
// through shared memory, where a wake-up costs more than a small message.

#include <cstdint>

namespace aikido::transport {

enum class Need : uint8_t {
  kNow,    // whatever comes
  kNews,   // but for what can wait for the next call here
  kLater,  // nothing, before something else has come over another link
};

}  // namespace aikido::transport

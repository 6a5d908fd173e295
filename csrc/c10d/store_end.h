// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The end of a store that another process serves, seen from a client: its connections
// are closed. Nothing is sent: a server of torch may choke on connections that say
// nothing. Any thread.

#include <cstdint>

#include "base/clock.h"

namespace aikido::adapter {

struct StoreEnd {
  uint16_t port = 0;  // of the server; 0: none

  // Whether the server has closed all connections of this process to its port.
  bool has_come() const;
  // Returns then, or after `limit`: somebody else may keep the store. Blocks.
  void wait(Duration limit) const;
};

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// End of a store that another process serves, as its client sees it: the connections
// are closed. Nothing is sent, because torch's servers may fail on silent connections.
// Any thread.

#include <cstdint>

#include "base/clock.h"

namespace aikido::adapter {

struct StoreEnd {
  uint16_t port = 0;  // of the server; 0: none

  // True if the server has closed all connections of this process to its port.
  bool has_come() const;
  // Blocks until the server has closed them, for at most `limit`: another user may keep
  // the store.
  void wait(Duration limit) const;
};

}  // namespace aikido::adapter

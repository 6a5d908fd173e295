// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Time window of each transfer: from its ready time to its first use. Caramel calls
// this the transfer boundaries of a parameter (Hashemi, Abdu Jyothi, Godfrey and
// Campbell, arXiv 2004.14020). The computation here is our own. Pure; any thread.

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "ordering/graph.h"

namespace aikido::ordering {

// Times of an iteration that never waits for a transfer.
struct Window {
  size_t op = 0;           // index of a transfer
  double ready_s = 0;      // all that it needs is done
  double first_use_s = 0;  // begin of its first user; the end if it has none
  double tail_s = 0;       // from first_use_s to the end
  // Rest of the window: the latest delay of its begin. Negative if its user always
  // waits.
  double slack_s = 0;
};

struct Windows {
  std::vector<Window> of;  // by transfer, ascending
  double end_s = 0;        // of all computing
};

// For one processor in the program order. kInvalidArgument if the graph is not valid.
Result<Windows> windows_of(const Graph& graph);

}  // namespace aikido::ordering

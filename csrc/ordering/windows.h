// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// When each transfer could go: from when its data is there to when it is first used.
// This is what Caramel (Hashemi, Abdu Jyothi, Godfrey and Campbell, arXiv 2004.14020)
// calls the transfer boundaries of a parameter; how they are found here is our own.
// Pure; any thread.

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "ordering/graph.h"

namespace aikido::ordering {

// Times of an iteration that never waits for a transfer.
struct Window {
  size_t op = 0;           // index of a transfer
  double ready_s = 0;      // all that it needs is done
  double first_use_s = 0;  // its first user begins; the end, where it has none
  double tail_s = 0;       // from there to the end
  // What is left of the window: how late it may begin. Below 0 somebody waits for it,
  // however early it goes.
  double slack_s = 0;
};

struct Windows {
  std::vector<Window> of;  // by transfer, ascending
  double end_s = 0;        // of all computing
};

// On one processor in the program order. kInvalidArgument for a graph that is not
// valid.
Result<Windows> windows_of(const Graph& graph);

}  // namespace aikido::ordering

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Best possible order, found by trying all orders, as a reference for other methods.
// Deterministic; pure; any thread.

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "ordering/graph.h"
#include "ordering/simulate.h"

namespace aikido::ordering {

struct BestOrder {
  std::vector<size_t> order;  // the first of several, by the order of the list
  double makespan_s = 0;
};

inline constexpr size_t kMostTransfersToSearch = 8;

// Tries orders with `simulate` and these options. Stops when an order takes no longer
// than the lower bound: all transfers, or all computing by its processors. Returns
// kInvalidArgument if `simulate` refuses the input, for more than
// kMostTransfersToSearch transfers, for kFifo, which has no order, and if no order is
// possible.
Result<BestOrder> best_order(const Graph& graph, SimulateOptions options);

}  // namespace aikido::ordering

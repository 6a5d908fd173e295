// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The best order there is, by looking at all of them: to know how far others are from
// it. Deterministic; pure; any thread.

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "ordering/graph.h"
#include "ordering/simulate.h"

namespace aikido::ordering {

struct BestOrder {
  std::vector<size_t> order;  // of several the first, transfers taken as in the list
  double makespan_s = 0;
};

inline constexpr size_t kMostTransfersToSearch = 8;

// By `simulate` with these options but for their order, until one takes no more than
// what is always needed: all transfers, or all computing by its processors.
// kInvalidArgument for what `simulate` refuses, for more transfers than
// kMostTransfersToSearch, for kFifo, which has no order, and where no order can be
// kept.
Result<BestOrder> best_order(const Graph& graph, SimulateOptions options);

}  // namespace aikido::ordering

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Grouping of transfers into batches. A batch pays the fixed cost of a transfer once,
// but its first part waits for its last. This is the adaptive batching of Caramel
// (arXiv 2004.14020); the method is our own. Pure; any thread.
//
// Note [batches]
// Transfers go in a given order, and a batch is a run of that order. A batch begins
// when all its data is ready and the link is free. It takes alpha + beta * bytes. A
// user of one of its transfers continues when the batch ends, and needs `tail_s` from
// then on. So the iteration takes the largest end plus tail.
//   The first items can be cut in many ways, and the following items determine which is
// best. But a cut is never worse than another cut of the same items if it ends no later
// and its largest end plus tail so far is not larger. So the dynamic programme keeps,
// for each number of items, all cuts that no other cut beats in both values. It takes
// n^2 steps for each kept cut, and few are kept. Shi, Chu and Li, "MG-WFBP: Efficient
// Data Communication for Distributed Synchronous SGD Algorithms", INFOCOM 2019, have
// the same costs with all tails 0, and merge greedily from the last layer on.

#include <cstddef>
#include <limits>
#include <vector>

#include "base/status.h"
#include "ordering/graph.h"

namespace aikido::ordering {

struct BatchItem {  // one transfer
  double bytes = 0;
  double ready_s = 0;  // time at which its data is ready
  double tail_s = 0;   // computing from its first use to the end of the iteration
};

struct Batch {
  size_t first = 0, count = 0;  // of the items
  double bytes = 0;
  double begin_s = 0, end_s = 0;
};

struct BatchPlan {
  std::vector<Batch> batches;  // all items, in order
  double end_s = 0;            // of the iteration: the largest end plus tail
};

struct BatchOptions {
  double most_bytes =
      std::numeric_limits<double>::infinity();  // limit of a batch of several items
};

// Plan with the earliest end; the same plan each time if there are several.
// kInvalidArgument if a number is negative or not finite.
Result<BatchPlan> plan_batches(const std::vector<BatchItem>& items,
                               const cost::LinkCost& link, const BatchOptions& options);

// Plan with batches of these sizes, one after another. Requires: `counts` are positive
// and add up to the number of items, and the items are valid.
BatchPlan plan_with(const std::vector<BatchItem>& items, const cost::LinkCost& link,
                    const std::vector<size_t>& counts);

// Items of a graph for transfers that go in `order`; see windows.h. kInvalidArgument if
// the graph or the order is not valid.
Result<std::vector<BatchItem>> batch_items(const Graph& graph,
                                           const std::vector<size_t>& order);

// The graph with each batch as one transfer. It is named by its first and last
// transfer, and needs all that any of them needs. The transfers are listed in the order
// of the batches. kInvalidArgument if `plan` has another number of transfers, or if one
// transfer of a batch needs another of the same batch.
Result<Graph> with_batches(const Graph& graph, const std::vector<size_t>& order,
                           const BatchPlan& plan, const cost::LinkCost& link);

}  // namespace aikido::ordering

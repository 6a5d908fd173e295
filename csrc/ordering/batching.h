// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Which transfers go together as one, so that what each transfer costs whatever its
// size is paid less often, and still nobody waits long for the last part of a batch:
// the adaptive batching of Caramel (arXiv 2004.14020). The method is our own. Pure; any
// thread.
//
// Note [batches]
// Transfers go in a given order, so a batch is a run of it. It begins when all of it is
// ready and the link is free, and takes alpha + beta * bytes. Someone who waits for one
// of its transfers goes on when it ends, and needs `tail_s` from then on: the iteration
// takes the largest end plus tail. A beginning of the order is cut in many ways, and
// which is best depends on what follows; but of two cuts of the same beginning the one
// that ends no later, and has no larger end plus tail so far, is never worse. The
// programme keeps, for each beginning, all cuts that no other beats in both (n^2 steps
// for each that is kept, of which there are few). Shi, Chu and Li, "MG-WFBP: Efficient
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
  double ready_s = 0;  // when its data is there
  double tail_s = 0;   // computing from its first use to the end of the iteration
};

struct Batch {
  size_t first = 0, count = 0;  // of the items
  double bytes = 0;
  double begin_s = 0, end_s = 0;
};

struct BatchPlan {
  std::vector<Batch> batches;  // all items, in their order
  double end_s = 0;            // of the iteration: the largest end plus tail
};

struct BatchOptions {
  double most_bytes = std::numeric_limits<double>::infinity();  // of a batch of several
};

// A plan that ends first, always the same of several. kInvalidArgument with a sentence
// for figures that are negative or no numbers.
Result<BatchPlan> plan_batches(const std::vector<BatchItem>& items,
                               const LinkCost& link, const BatchOptions& options);

// The plan with batches of so many items, one after another. Requires: `counts` are
// above 0 and add up to the number of items, which make sense.
BatchPlan plan_with(const std::vector<BatchItem>& items, const LinkCost& link,
                    const std::vector<size_t>& counts);

// The items of a graph, for transfers that go in `order`: windows.h has what they are.
// kInvalidArgument for a graph or an order that is not valid.
Result<std::vector<BatchItem>> batch_items(const Graph& graph,
                                           const std::vector<size_t>& order);

// The graph with each batch as one transfer, called by its first and last, that needs
// what any of it needs. Its transfers follow each other in the list as the batches do.
// kInvalidArgument where `plan` is for another number of transfers, and where a
// transfer of a batch is needed for another of it.
Result<Graph> with_batches(const Graph& graph, const std::vector<size_t>& order,
                           const BatchPlan& plan, const LinkCost& link);

}  // namespace aikido::ordering

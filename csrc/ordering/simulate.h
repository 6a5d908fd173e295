// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One iteration on one link and some processors: when each op runs, and when all is
// done. Deterministic; pure; any thread.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ordering/graph.h"

namespace aikido::ordering {

// What the link does next when it is free.
enum class LinkRule : uint8_t {
  kFifo,      // what could begin first; of several the first of the list
  kInOrder,   // the next of the order, for which it waits (how TicTac enforces orders)
  kPriority,  // of what can begin the first of the order; chunk by chunk
  kPreemptive,  // the same at any moment: what runs is paused for what comes before it
};
// "fifo" and so on; kInvalidArgument for others.
Result<LinkRule> link_rule_named(std::string_view name);

// What a processor does next.
enum class ComputeRule : uint8_t {
  kWhenReady,  // of what can begin the first of the program order
  kProgram,    // the program order, and nothing else before its turn: eager PyTorch
};
Result<ComputeRule> compute_rule_named(std::string_view name);

struct SimulateOptions {
  LinkRule link = LinkRule::kPriority;
  std::vector<size_t> order;  // all transfers; not looked at for kFifo
  // kPriority chooses again after so many bytes; 0: only when a transfer is done. Time
  // goes with bytes; a transfer of none is one chunk.
  double chunk_bytes = 0;
  ComputeRule compute = ComputeRule::kWhenReady;
  int processors = 1;
};

struct Span {  // of one op, without a pause
  size_t op = 0;
  int processor = -1;  // -1: the link
  double begin_s = 0, end_s = 0;
};

struct Timeline {
  double makespan_s = 0;
  std::vector<Span> spans;  // by begin, the link first; those of no time are left out
  std::vector<double> done_s;  // by op
  size_t pauses = 0;  // times that a transfer waited for another after its beginning
};

// kInvalidArgument with a sentence for a graph or order that is not valid, for options
// that make no sense, and where the order cannot be kept: a transfer that comes later
// in it is needed for one that comes before.
Result<Timeline> simulate(const Graph& graph, const SimulateOptions& options);

}  // namespace aikido::ordering

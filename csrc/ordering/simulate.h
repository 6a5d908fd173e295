// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Simulation of one iteration on one link and some processors: the time of each op and
// of the whole iteration. Deterministic; pure; any thread.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ordering/graph.h"

namespace aikido::ordering {

// Choice of the link's next transfer.
enum class LinkRule : uint8_t {
  kFifo,     // earliest ready; the first of the list if there are several
  kInOrder,  // next of the order, even if the link must wait for it (as TicTac enforces
             // orders)
  kPriority,    // first of the order that is ready; chunk by chunk
  kPreemptive,  // first of the order that is ready, at any moment: pauses the running
                // transfer
};
// "fifo" and so on; kInvalidArgument for other names.
Result<LinkRule> link_rule_named(std::string_view name);

// Choice of a processor's next op.
enum class ComputeRule : uint8_t {
  kWhenReady,  // first of the program order that is ready
  kProgram,    // strictly the program order: eager PyTorch
};
Result<ComputeRule> compute_rule_named(std::string_view name);

struct SimulateOptions {
  LinkRule link = LinkRule::kPriority;
  std::vector<size_t> order;  // all transfers; unused for kFifo
  // kPriority chooses again after so many bytes; 0: only after a whole transfer. Time
  // is proportional to bytes; a transfer without bytes is one chunk.
  double chunk_bytes = 0;
  ComputeRule compute = ComputeRule::kWhenReady;
  int processors = 1;
};

struct TimedOp {  // uninterrupted time of one op
  size_t op = 0;
  int processor = -1;  // -1: the link
  double begin_s = 0, end_s = 0;
};

struct Timeline {
  double makespan_s = 0;
  std::vector<TimedOp>
      spans;  // by begin, the link first; without ops that take no time
  std::vector<double> done_s;  // by op
  size_t pauses = 0;  // number of times that a begun transfer waited for another
};

// kInvalidArgument for an invalid graph, order or option, and if the order is
// impossible: a transfer needs another transfer that comes later in the order.
Result<Timeline> simulate(const Graph& graph, const SimulateOptions& options);

}  // namespace aikido::ordering

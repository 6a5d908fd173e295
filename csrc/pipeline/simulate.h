// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How long a schedule takes, from what its stages and links take. A rank computes one
// thing at a time; transfers go on meanwhile, one after another on each link and
// direction. Deterministic; pure; any thread.

#include <optional>
#include <vector>

#include "base/status.h"
#include "pipeline/schedule.h"

namespace aikido::pipeline {

// Of one micro-batch on one rank, in any unit of time, the same for all.
struct StageTimes {
  double forward = 1;
  double backward = 2;
  double input_gradient = 1;
  double weight_gradient = 1;
  double recompute = 1;
  // Of an update: from the last replica's reduce to the sum, and the optimizer.
  double reduce = 0;
  double step = 0;
};

struct Timing {
  std::vector<StageTimes> stages;  // by stage
  // From a stage to the next and back, of one transfer, by the first of both stages.
  // Empty: nothing. On the same rank it is nothing.
  std::vector<double> links;
  std::vector<double> slowdown;  // by rank: factor on its computing; empty: 1
};

struct Span {  // of one instruction that takes the rank's time
  int rank = 0;
  size_t instruction = 0;
  double begin = 0, end = 0;
};

struct Simulation {
  double makespan = 0;          // until the last rank has done its last instruction
  std::vector<double> busy;     // by rank: computing and steps
  std::vector<double> bubbles;  // by rank: share of the makespan that it is idle
  std::vector<Span> spans;      // by rank, then by time
  // From one micro-batch to the next, where the pipeline runs steadily: after it is
  // filled and before it drains. Empty with flush, and where there are too few
  // micro-batches to see it: it takes about three times as many as are in flight, and
  // as the replicas need to come to the same phase again.
  std::optional<double> period;
};

// kInvalidArgument for a schedule that is not valid, for times that are negative or no
// numbers, and for lists of another length than the schedule's.
Result<Simulation> simulate(const Schedule& schedule, const Timing& timing);

}  // namespace aikido::pipeline

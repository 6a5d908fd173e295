// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Time of a schedule, from the times of its stages and links. A rank computes one
// instruction at a time. Transfers go on meanwhile, one after another for each link and
// direction. Deterministic; pure; any thread.

#include <optional>
#include <vector>

#include "base/status.h"
#include "pipeline/schedule.h"

namespace aikido::pipeline {

// For one micro-batch on one rank. Any unit of time, the same for all.
struct StageTimes {
  double forward = 1;
  double backward = 2;
  double input_gradient = 1;
  double weight_gradient = 1;
  double recompute = 1;
  // For an update: from the last replica's reduce to the sum, and the optimizer.
  double reduce = 0;
  double step = 0;
};

struct Timing {
  std::vector<StageTimes> stages;  // by stage
  // Time of one transfer between a stage and the next, in each direction, indexed by
  // the first of both stages. Empty: zero. On one rank it is zero.
  std::vector<double> links;
  std::vector<double> slowdown;  // by rank: factor of its computing times; empty: 1
};

struct BusySpan {  // time of one instruction that occupies the rank
  int rank = 0;
  size_t instruction = 0;
  double begin = 0, end = 0;
};

struct Simulation {
  double makespan = 0;          // until the last instruction of the last rank
  std::vector<double> busy;     // by rank: computing and steps
  std::vector<double> bubbles;  // by rank: idle fraction of the makespan
  std::vector<BusySpan> spans;  // by rank, then by time
  // Time from one micro-batch to the next while the pipeline runs steadily, after it is
  // filled and before it drains. Empty with flush, or with too few micro-batches: it
  // takes about three times the number in flight, and enough for the replicas to reach
  // the same phase again.
  std::optional<double> period;
};

// kInvalidArgument for an invalid schedule, for times that are negative or not finite,
// and for lists whose length does not fit the schedule.
Result<Simulation> simulate(const Schedule& schedule, const Timing& timing);

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A simulated schedule as a grid of text: a row for each rank, a column for each slot
// of time, in which stands what the rank computes in the middle of the slot. Pure; any
// thread.
//
//   rank 0  F0 F1 .  .  B0 B0 B1 B1
//   rank 1  .  F0 B0 B0 F1 B1 B1 .
//
// The number is that of the micro-batch; where ranks have several stages, that of the
// stage comes before it: F4.0. A step is U.

#include <cstddef>
#include <string>

#include "pipeline/simulate.h"

namespace aikido::pipeline {

struct GridOptions {
  double slot = 0;          // 0: the shortest time that anything takes
  size_t max_slots = 1000;  // what comes later is cut off, and "..." says so
};

// kInvalidArgument if the slot is negative or no number, or max_slots is 0. Requires:
// `simulation` is one of `schedule`.
Result<std::string> to_grid(const Schedule& schedule, const Simulation& simulation,
                            const GridOptions& options);

}  // namespace aikido::pipeline

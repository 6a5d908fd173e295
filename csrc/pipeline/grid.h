// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Text grid of a simulated schedule: a row for each rank and a column for each time
// slot. A cell shows the computation in the middle of the slot. Pure; any thread.
//
//   rank 0  F0 F1 .  .  B0 B0 B1 B1
//   rank 1  .  F0 B0 B0 F1 B1 B1 .
//
// The number is the micro-batch. If ranks have several stages, the stage comes before
// it: F4.0. A step is U.

#include <cstddef>
#include <string>

#include "pipeline/simulate.h"

namespace aikido::pipeline {

struct GridOptions {
  double slot = 0;          // 0: the shortest time of any instruction
  size_t max_slots = 1000;  // later slots are cut off, and "..." marks that
};

// kInvalidArgument if the slot is negative or not finite, or max_slots is 0. Requires:
// `simulation` belongs to `schedule`.
Result<std::string> to_grid(const Schedule& schedule, const Simulation& simulation,
                            const GridOptions& options);

}  // namespace aikido::pipeline

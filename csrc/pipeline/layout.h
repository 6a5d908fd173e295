// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Makes a schedule of the order in which ranks compute: adds messages, reductions,
// steps and versions. Pure; any thread.
//
// Note [one order for all]
// The ranks are run with unit times: a forward takes one, a backward two, each half of
// a backward one, times the replicas of the stage. All that happens is written in one
// order, by time, and a rank's list is its part of that. A message is written to both
// ends when its sender has computed it. So waiting in place for the other end comes to
// an end: everybody can go through the one order. A rank finds a receive in its list
// before it needs it, and may have others before, so receives do not wait (schedule.h).

#include <vector>

#include "base/status.h"
#include "pipeline/order.h"
#include "pipeline/schedule.h"

namespace aikido::pipeline {

// `schedule` has all but the instructions. Micro-batch b is in update b / per_step[s] +
// 1 of stage s. kInvalidArgument where the order cannot be carried out, with the
// instructions that wait. Requires: programs that do each micro-batch of each stage
// once on one rank of it; per_step divides the number of micro-batches.
Result<Schedule> lay_out(Schedule schedule, const std::vector<Program>& programs,
                         const std::vector<int>& per_step);

}  // namespace aikido::pipeline

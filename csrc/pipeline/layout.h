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

struct UpdateOptions {
  // By stage: micro-batch b is in update b / per_step + 1.
  std::vector<int> per_step;
  // A replica does its part of the next update while the last one's gradients are added
  // up: its step comes before its next reduce, not after the last. So weights are one
  // update older. Else it comes as soon as all replicas have reduced.
  bool overlap_sums = false;
};

// `schedule` has all but the instructions. kInvalidArgument where the order cannot be
// carried out, with the instructions that wait. Requires: programs that do each
// micro-batch of each stage once on one rank of it; per_step divides the number of
// micro-batches; overlap_sums comes with weights kStash.
Result<Schedule> lay_out(Schedule schedule, const std::vector<Program>& programs,
                         const UpdateOptions& options);

}  // namespace aikido::pipeline

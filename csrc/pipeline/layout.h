// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Layout of a schedule: adds messages, reductions, steps and versions to the order of
// computing. Pure; any thread.
//
// Note [one order for all]
// The ranks are simulated with unit times: a forward takes one, a backward two, each
// half of a backward one, times the replicas of the stage. All events are written in
// one order, by time, and each rank's list is its part of that order. A message is
// written to both ends when its sender has computed it. So even if each rank waited in
// place for the other end, all would finish, because all can follow the one order. A
// receive may stand in a list earlier than it is needed, and before others, so receives
// do not wait (schedule.h).

#include <vector>

#include "base/status.h"
#include "pipeline/order.h"
#include "pipeline/schedule.h"

namespace aikido::pipeline {

struct UpdateOptions {
  // By stage: micro-batch b is in update b / per_step + 1.
  std::vector<int> per_step;
  // A replica works on the next update while the gradients of the last are added up:
  // its step comes before its next reduce, and not after the last one. So weights are
  // one update older. Otherwise the step comes as soon as all replicas have reduced.
  bool overlap_sums = false;
};

// `schedule` has everything except instructions. kInvalidArgument names the waiting
// instructions if the order is impossible. Requires: the programs do each micro-batch
// of each stage once, on one rank of the stage; per_step divides the number of
// micro-batches; overlap_sums only with kStash.
Result<Schedule> lay_out(Schedule schedule, const std::vector<Program>& programs,
                         const UpdateOptions& options);

}  // namespace aikido::pipeline

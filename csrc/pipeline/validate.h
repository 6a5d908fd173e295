// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Check that a schedule can be executed and keeps the promises of its policy, without
// running it. By the note in schedule.h, these are checked:
//
// - order: each stage does each micro-batch once, on one of its ranks, forward and then
//   backward (or both halves). Nothing is used before it is computed or received. Each
//   message has both ends, at the ranks of its stages;
// - messages: if each send and receive waited in place for its other end, all ranks
//   would still finish. A reduce does not wait, a step does;
// - updates: each gradient is in one update of its stage, and all replicas take all
//   steps. Except with stash, an update has the same micro-batches on all stages;
// - versions: the used version exists, a backward uses the version of its forward, and
//   that is the version of the policy. 2bw keeps two versions, flush one;
// - memory: the number of micro-batches with activations on a rank, against a limit.
//
// Pure; any thread.

#include <optional>
#include <vector>

#include "base/status.h"
#include "pipeline/schedule.h"

namespace aikido::pipeline {

struct ValidateOptions {
  std::optional<int> max_activations;  // limit for each rank
};

// Largest amounts that a rank holds at one time.
struct RankMemory {
  // Micro-batches of a stage from forward (recomputed: from C) to backward or weight
  // gradient.
  int activations = 0;
  int inputs = 0;    // micro-batches that wait for their C, with only the input kept
  int versions = 0;  // versions of weights, of all its stages
};

struct Validation {
  std::vector<RankMemory> ranks;
  // By stage, for update 1, 2 ...: how many updates were missing in the oldest version
  // that one of its micro-batches used.
  std::vector<std::vector<int>> lags;
};

// kInvalidArgument names rank, instruction and reason; `culprit` is the rank. Errors in
// the lines of stages, and of ranks without their work, name no instruction.
Result<Validation> validate(const Schedule& schedule, const ValidateOptions& options);

}  // namespace aikido::pipeline

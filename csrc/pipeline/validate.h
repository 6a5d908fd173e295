// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Whether a schedule can be carried out and computes what its policy promises, without
// running anything. Checked are, by the note in schedule.h:
//
// - order: each stage does each micro-batch once, on one of its ranks, forward, then
//   backward (or both halves); nothing is used before it is computed or received, and
//   each message has both ends, at the ranks that have its stages;
// - messages: if each send and receive waited in place for its other end, all ranks
//   would still come to the end of their lists. A reduce does not wait, a step does;
// - updates: each gradient is in one update of its stage, all replicas take all steps;
//   but for stash an update has the same micro-batches on all stages;
// - versions: what is computed with is there, a backward takes the version of its
//   forward, and that is the one of the policy; 2bw keeps two, flush one;
// - memory: micro-batches whose activations a rank holds, against a limit.
//
// Pure; any thread.

#include <optional>
#include <vector>

#include "base/status.h"
#include "pipeline/schedule.h"

namespace aikido::pipeline {

struct ValidateOptions {
  std::optional<int> max_activations;  // on any rank
};

// The most that a rank holds at a time.
struct RankMemory {
  // Micro-batches of a stage from forward (of those that are recomputed: from C) to
  // backward or weight gradient.
  int activations = 0;
  int inputs = 0;    // of those that wait for their C, of which only the input is kept
  int versions = 0;  // of weights, of all its stages
};

struct Validation {
  std::vector<RankMemory> ranks;
  // By stage, of update 1, 2 ...: how many updates were missing in the oldest version
  // that one of its micro-batches took.
  std::vector<std::vector<int>> lags;
};

// kInvalidArgument with a sentence that names rank, instruction and reason; `culprit`
// is the rank. Not about an instruction are only sentences about the lines of stages,
// and about ranks that do nothing of what they should.
Result<Validation> validate(const Schedule& schedule, const ValidateOptions& options);

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Generation of schedules by name. Pure; any thread.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "pipeline/schedule.h"

namespace aikido::pipeline {

enum class Method : uint8_t {
  kGpipe,        // "gpipe"
  kOneFOneB,     // "1f1b": with a flush at the end
  kAsync,        // "1f1b_async": PipeDream; goes on while gradients are applied
  kInterleaved,  // "interleaved_1f1b": several stages on each rank
  kZeroBubble,   // "zero_bubble": ZB-H1, also interleaved
};
std::string_view name_of(Method method);
Result<Method> method_named(std::string_view name);

struct GenerateOptions {
  Method method = Method::kOneFOneB;
  int stages = 1;
  int micro_batches = 1;
  // By stage; empty: one each. Stages are on consecutive ranks, beginning with rank 0.
  std::vector<int> replicas;
  // For schedules with a flush, by stage: the replica of each micro-batch, repeated, so
  // that a slow replica may have fewer. Empty: all in turns.
  std::vector<std::vector<int>> turns;
  // Interleaved and zero bubble: stage s is on rank s mod (stages / stages_per_rank).
  int stages_per_rank = 1;
  // For 1f1b_async: stash, vertical_sync or 2bw; empty: stash. All others flush.
  std::optional<WeightPolicy> weights;
  // For 1f1b_async: micro-batches of an update. Empty: with stash, for each stage its
  // number of replicas, as in PipeDream. With vertical_sync, the least number that
  // gives all replicas equally many. With 2bw, the least divisor of micro_batches that
  // is not below the number in flight.
  std::optional<int> micro_batches_per_step;
  // Forwards before the first backward, by stage; empty: as warmups_of().
  std::vector<int> warmups;
  // For 1f1b_async with stash: replicas continue while their gradients are added up
  // (layout.h).
  bool overlap_sums = false;
  bool recompute = false;
};

// kInvalidArgument names the option. The result is valid (validate.h).
Result<Schedule> generate(const GenerateOptions& options);

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Schedules by name. Pure; any thread.

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
  kZeroBubble,   // "zero_bubble": ZB-H1, and interleaved
};
std::string_view name_of(Method method);
Result<Method> method_named(std::string_view name);

struct GenerateOptions {
  Method method = Method::kOneFOneB;
  int stages = 1;
  int micro_batches = 1;
  // By stage; empty: one each. Stages are on ranks in a row, stage 0 on the first.
  std::vector<int> replicas;
  // Of schedules that flush, by stage: which replica takes a micro-batch, again and
  // again, so that a slow one may have fewer. Empty: all in turns.
  std::vector<std::vector<int>> turns;
  // Interleaved and zero bubble: stage s is on rank s mod (stages / stages_per_rank).
  int stages_per_rank = 1;
  // Of 1f1b_async: stash, vertical_sync or 2bw; empty: stash. All others flush.
  std::optional<WeightPolicy> weights;
  // Of 1f1b_async: what an update takes. Empty: with stash of each stage as many as it
  // has replicas, as in PipeDream; with vertical_sync as few as all replicas have the
  // same number of; with 2bw the fewest that divide micro_batches and are not below
  // what is in flight.
  std::optional<int> micro_batches_per_step;
  // Forwards before the first backward, by stage; empty: as warmups_of has it.
  std::vector<int> warmups;
  // Of 1f1b_async with stash: replicas go on while their gradients are added up
  // (layout.h).
  bool overlap_sums = false;
  bool recompute = false;
};

// kInvalidArgument with a sentence that names the option. The schedule is valid
// (validate.h).
Result<Schedule> generate(const GenerateOptions& options);

}  // namespace aikido::pipeline

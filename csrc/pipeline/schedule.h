// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Schedule of a pipeline: the instructions of each rank, in order. It is made by
// generate.h, checked by validate.h, timed by simulate.h, drawn by grid.h, read and
// written as text, and executed. Plain values; any thread.
//
// Note [execution of a schedule]
// A rank executes its instructions one after another.
// - A send starts a transfer and a receive prepares one; neither waits. They are
//   identified by stage and micro-batch, so transfers may overtake each other. In a
//   valid schedule their order would also work if each waited in place for the other
//   side.
// - Computing waits for its inputs: the input of a forward, the gradient of an output.
//   Between stages of one rank these need no message.
// - The last stage has the loss and the first has the data, without a message.
// - The gradients that a rank has computed for a stage since the last reduce (without
//   replicas: step) form one update. reduce adds those of all replicas, including
//   replicas without a micro-batch of it. `step1@3` waits for that, and makes version 3
//   of stage 1 from version 2 and the reduced gradients, in place.
// - The schedule begins with version 0. `push1@2` keeps a copy of version 2, the
//   newest, beside the later versions. Computing with @2 reads that copy if there is a
//   newer version. `pop1@2` drops the copy.
// - If a stage is recomputed (C), only its input is kept from F to C.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "pipeline/instruction.h"

namespace aikido::pipeline {

// Version of the weights for a micro-batch, forward and backward.
enum class WeightPolicy : uint8_t {
  kFlush,         // the newest; no version is replaced while a micro-batch needs it
  kStash,         // the newest of the rank at its forward; older versions are kept
  kVerticalSync,  // on all stages the version of the first stage
  kTwoVersions,   // the second newest: update u uses version u - 2 (2BW)
};

// "flush", "stash", "vertical_sync", "2bw".
std::string_view name_of(WeightPolicy policy);
Result<WeightPolicy> weight_policy_named(std::string_view name);

struct Schedule {
  std::string name;
  int num_micro_batches = 0;
  WeightPolicy weights = WeightPolicy::kFlush;
  std::vector<std::vector<int>> stages;         // ranks of each stage: its replicas
  std::vector<std::vector<Instruction>> ranks;  // instructions of each rank
  friend bool operator==(const Schedule&, const Schedule&) = default;

  int num_stages() const { return static_cast<int>(stages.size()); }
  int num_ranks() const { return static_cast<int>(ranks.size()); }
};

// Lines "schedule <name>", "micro_batches <n>", "weights <policy>", "stage <s>: <rank>
// ...", "rank <r>: <instruction> ...". Instructions of a rank may continue in lines
// that begin with a space. Text after a # is ignored.
std::string to_text(const Schedule& schedule);
// kInvalidArgument names line and word. The result may be invalid as a schedule: see
// validate.h.
Result<Schedule> parse_schedule(std::string_view text);

// "rank 1, instruction 4 (F1.3@2)": instructions count from 0.
std::string place_of(const Schedule& schedule, int rank, size_t index);

}  // namespace aikido::pipeline

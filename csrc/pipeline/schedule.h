// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What each rank of a pipeline does, in order: made (generate.h), checked (validate.h),
// timed (simulate.h), drawn (grid.h), read and written as text, and carried out. Plain
// values; any thread.
//
// Note [how a schedule is carried out]
// A rank does its instructions one after another.
// - A send starts a transfer and a receive makes ready for one; neither waits. They are
//   known by stage and micro-batch, so that transfers may overtake each other. In a
//   valid schedule they are in such an order that waiting in place for the other side
//   would come to an end, too.
// - Computing waits for what it needs: the input of a forward, the gradient of an
//   output. On one rank these go from stage to stage without a message.
// - The last stage has the loss, the first has the data: no message.
// - The gradients that a rank has computed for a stage since the last reduce (without
//   replicas: step) are one update; reduce adds those of all replicas, also of one that
//   had no micro-batch of it. `step1@3` makes version 3 of stage 1 out of version 2 and
//   the reduced gradients, in place; it waits for them.
// - Version 0 is what the schedule begins with. `push1@2` keeps a copy of version 2,
// the
//   newest, beside what steps make of it; computing with @2 reads that copy when there
//   is a newer version; `pop1@2` ends it.
// - Of a micro-batch whose stage is recomputed (C) only the stage's input is kept from
// F
//   to C.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "pipeline/instruction.h"

namespace aikido::pipeline {

// Which version of the weights a micro-batch takes, forward and backward.
enum class WeightPolicy : uint8_t {
  kFlush,         // the newest, and none is replaced while a micro-batch needs it
  kStash,         // the newest of the rank at its forward; older ones are kept
  kVerticalSync,  // on all stages the one it had on the first
  kTwoVersions,   // the one before the newest: update u takes version u - 2 (2BW)
};

// "flush", "stash", "vertical_sync", "2bw".
std::string_view name_of(WeightPolicy policy);
Result<WeightPolicy> weight_policy_named(std::string_view name);

struct Schedule {
  std::string name;
  int num_micro_batches = 0;
  WeightPolicy weights = WeightPolicy::kFlush;
  std::vector<std::vector<int>> stages;         // ranks that have each: its replicas
  std::vector<std::vector<Instruction>> ranks;  // what each does
  friend bool operator==(const Schedule&, const Schedule&) = default;

  int num_stages() const { return static_cast<int>(stages.size()); }
  int num_ranks() const { return static_cast<int>(ranks.size()); }
};

// Lines "schedule <name>", "micro_batches <n>", "weights <policy>", "stage <s>: <rank>
// ...", "rank <r>: <instruction> ...". Instructions of a rank may go on in lines that
// begin with a space. What follows a # does not count.
std::string to_text(const Schedule& schedule);
// kInvalidArgument with a sentence that names line and word. What is read need not be
// valid: validate.h.
Result<Schedule> parse_schedule(std::string_view text);

// "rank 1, instruction 4 (F1.3@2)": instructions count from 0.
std::string place_of(const Schedule& schedule, int rank, size_t index);

}  // namespace aikido::pipeline

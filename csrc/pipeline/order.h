// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Order of computing of each rank, by the name of the schedule: F, B, I and W without
// messages and versions, which layout.h adds. A micro-batch uses the same replica
// forward and backward. Pure; any thread.

#include <vector>

#include "pipeline/instruction.h"

namespace aikido::pipeline {

using Program = std::vector<Instruction>;
using Stages = std::vector<std::vector<int>>;  // ranks of each stage

// Consecutive stages on separate ranks, beginning with rank 0.
Stages stages_in_a_row(const std::vector<int>& replicas);
// Stage s on rank s mod num_ranks.
Stages stages_in_turns(int num_ranks, int stages_per_rank);

// Forwards of each replica of a stage before its first backward, by stage. It is the
// least number with which a pipeline of equally fast stages keeps their pace. The
// replicas of a stage hold whole multiples of their number in flight. So a stage holds
// as much as the next stage and one more for each of its own replicas, rounded up: r (w
// + 1) >= r' (w' + 1) + r, and w = 0 on the last stage. Without replicas that is the
// number of following stages. With uneven replicas it is more than PipeDream's rule,
// which rounds once and starves such pipelines.
std::vector<int> warmups_of(const std::vector<int>& replicas);

// By stage: the replica of each micro-batch, repeated from the beginning.
using Turns = std::vector<std::vector<int>>;
// Each replica in turn.
Turns even_turns(const Stages& stages);

// All forwards, then all backwards: Huang et al., "GPipe", NeurIPS 2019.
std::vector<Program> gpipe_order(const Stages& stages, const Turns& turns,
                                 int num_micro_batches);

// `warmups` forwards, then a forward and a backward in turns, then the rest: Narayanan
// et al., "PipeDream", SOSP 2019, section 3.2.
std::vector<Program> one_f_one_b_order(const Stages& stages, const Turns& turns,
                                       const std::vector<int>& warmups,
                                       int num_micro_batches);

// For several stages on each rank (stages_in_turns). Micro-batches pass the stages of a
// rank in portions of one size: num_micro_batches must be a multiple of max(1,
// num_micro_batches / num_ranks). Narayanan et al., "Efficient Large-Scale Language
// Model Training on GPU Clusters", SC 2021, section 2.2. With `zero_bubble`, backwards
// are I and W, and W fills idle time: Qi et al., "Zero Bubble Pipeline Parallelism",
// ICLR 2024, section 2.1 (ZB-H1).
std::vector<Program> interleaved_order(int num_ranks, int stages_per_rank,
                                       int num_micro_batches, bool zero_bubble);

// With a recomputation before each backward that does not directly follow its forward.
Program with_recomputing(const Program& program);

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Division of a model into stages, and the number of machines for each, so that the
// slowest stage is as fast as possible (README.md has the method). Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipeline/cost.h"
#include "pipeline/profile.h"

namespace aikido::pipeline {

struct PartitionOptions {
  // By level, lowest first: number of connected machines (above: of groups of the level
  // below), and bytes per second between them.
  std::vector<int> machines;
  std::vector<double> bandwidths;
  CostModel model = CostModel::kPaper;
  bool count_transfers = true;         // between stages; false: they cost nothing
  bool straight = false;               // no stage has replicas
  bool fewer_machines = false;         // some machines may stay idle
  std::optional<double> memory_bytes;  // of a machine; the kept data must be below it
  // With more cuts branches are joined (branches.h). If there are still more, the model
  // is refused, because cuts take memory and time.
  size_t max_cuts = 5000;
};

// Seconds are for one mini-batch, bytes for one machine.
struct Stage {
  std::vector<size_t>
      layers;  // indices of the profile, each after the layers that it needs
  std::vector<int> replicas;  // by level, lowest first
  int64_t machines = 1;       // machines of the stage: the product of the replicas
  double compute_s = 0;       // on one machine
  double sync_s = 0;          // to add up its gradients, on all levels
  double transfer_s = 0;      // to pass on activations and gradients, one transfer
  double period_s = 0;        // from one mini-batch to the next, without transfers
  double parameter_bytes = 0;
  double activation_bytes = 0;
  double input_bytes = 0;   // from the stages before
  int64_t versions = 1;     // kept versions of weights and activations
  double memory_bytes = 0;  // by the rule of the cost model
};

struct Plan {
  double period_s = 0;  // slowest stage or transfer: the objective
  std::vector<Stage> stages;
  int64_t machines = 0;  // in use
  // "3-1": replicas of each stage, in order. With higher levels, "2(3-1)-1(4)":
  // replicas of each group of stages, with the pipeline inside each replica.
  std::string text;
  std::string note;  // why a faster plan may exist (CutGraph::note()); empty: none does
  double one_machine_s = 0;    // the whole model on one machine
  double data_parallel_s = 0;  // the whole model on every machine
};

// With kPaper no plan of these layers is faster unless plan.note is set, and the plan
// does not depend on the order of the layers in the profile. With kPublishedCode it has
// the cuts of the published optimizer: each of them contains the first layer of the
// profile that has no input.
//
// kInvalidArgument for an invalid profile or option, for more stages than the model has
// cuts for, if no plan has a finite time, and if no plan fits into the memory. In the
// last case the text gives the least memory that is needed, and for which stage.
Result<Plan> partition(const Profile& profile, const PartitionOptions& options);

// The profile with the stage of each layer. Requires: the plan is of this profile.
Profile with_stages(Profile profile, const Plan& plan);

}  // namespace aikido::pipeline

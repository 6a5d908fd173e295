// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Where a model is cut into stages, and how many machines do each: such that the
// slowest stage is as fast as it can be (README.md has the method). Pure; any thread.

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
  // By level, lowest first: how many machines (above: groups of the level below) are
  // connected, and how many bytes a second go from one to another.
  std::vector<int> machines;
  std::vector<double> bandwidths;
  CostModel model = CostModel::kPaper;
  bool count_transfers = true;         // between stages; false takes them for free
  bool straight = false;               // no stage has replicas
  bool fewer_machines = false;         // some may be left idle
  std::optional<double> memory_bytes;  // of a machine; what is kept there is below it
  // With more cuts branches are joined (branches.h); more than that are refused, since
  // they take memory and time.
  size_t max_cuts = 5000;
};

// Seconds are those of one mini-batch, bytes those of one machine.
struct Stage {
  std::vector<size_t> layers;  // of the profile, each after what it needs
  std::vector<int> replicas;   // by level, lowest first
  int64_t machines = 1;        // all that do it: the product of the replicas
  double compute_s = 0;        // on one machine
  double sync_s = 0;           // to add up its gradients, on all levels
  double transfer_s = 0;       // to pass on activations and gradients, one transfer
  double period_s = 0;         // from one mini-batch to the next, without transfers
  double parameter_bytes = 0;
  double activation_bytes = 0;
  double input_bytes = 0;   // that it takes from the stages before
  int64_t versions = 1;     // of weights and activations that are kept
  double memory_bytes = 0;  // by the rule of the cost model
};

struct Plan {
  double period_s = 0;  // slowest stage or transfer: the objective
  std::vector<Stage> stages;
  int64_t machines = 0;  // in use
  // "3-1": replicas of each stage, in order. With levels above, "2(3-1)-1(4)": of each
  // group of stages, with the pipeline inside of each replica.
  std::string text;
  std::string note;  // why a faster plan may exist (CutGraph::note()); empty: none does
  double one_machine_s = 0;    // the whole model on one machine
  double data_parallel_s = 0;  // the whole model on every machine
};

// With kPaper no plan of these layers is faster unless plan.note is set, and the plan
// does not depend on the order of the layers in the profile. kPublishedCode has the
// cuts of the published optimizer, which begin at the first source in that order.
//
// kInvalidArgument with a sentence for a profile or options that make no sense, for
// more stages than the model can be cut into, and where no plan fits into the memory
// (it says what the smallest needs, and for which stage).
Result<Plan> partition(const Profile& profile, const PartitionOptions& options);

// The profile with the stage of each layer.
Profile with_stages(Profile profile, const Plan& plan);

}  // namespace aikido::pipeline

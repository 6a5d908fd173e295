// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Cost and memory of a stage, in two models. Seconds are for one mini-batch, bytes for
// one machine. Pure; any thread.
//
// A stage has `replicas` components of one level. They process mini-batches in turns
// and add up their gradients with that level's bandwidth. README.md has the formulas.

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "pipeline/cut_graph.h"

namespace aikido::pipeline {

enum class CostModel {
  kPaper,          // as the PipeDream paper describes: computing and adding up overlap
  kPublishedCode,  // as its published optimizer computes: one after the other
};

std::string_view name_of(CostModel model);  // "paper", "published_code"
Result<CostModel> cost_model_named(std::string_view name);

// Level of connected components: machines at the lowest level, groups of machines
// above.
struct Level {
  int count = 1;         // components in one component of the next level
  double bandwidth = 0;  // between them, bytes a second
  int below =
      1;  // components of the level below in one component; 1 at the lowest level
  int64_t machines = 1;  // in one component
};

// Machines that come after a component in its pipeline, per machine of its own, as a
// fraction.
struct Load {
  int64_t after = 0, own = 1;

  // Load of each of `replicas` components with `components` further components after
  // them, inside a component with this load.
  Load inside(int components, int replicas, const Level& level) const;
  friend auto operator<=>(const Load&, const Load&) = default;
};

class Cost {
 public:
  Cost(CostModel model, bool counts_transfers)
      : model_(model), counts_transfers_(counts_transfers) {}

  CostModel model() const { return model_; }
  // Time to add up gradients of so many bytes. `is_first`: the stage begins its block.
  double sync_s(double parameter_bytes, int replicas, const Level& level,
                bool is_first) const;
  // Time of a stage with components that need `inner_s` each.
  double stage_s(double inner_s, double sync_s, int replicas) const {
    const double together = model_ == CostModel::kPaper
                                ? (inner_s > sync_s ? inner_s : sync_s)
                                : inner_s + sync_s;
    return together / replicas;
  }
  // Transfers of a stage between two cuts: outputs one way, gradients back. The first
  // stage has none, because its output counts as input of the second.
  double transfer_s(const LayerCut& from, const LayerCut& to, bool is_last,
                    int replicas, const Level& level) const;
  // Bytes that leave a cut in one direction.
  double output_bytes(const LayerCut& cut) const {
    return model_ == CostModel::kPaper ? cut.crossing_bytes : cut.frontier_bytes;
  }

  // Mini-batches of which a stage keeps activations and weights: mini-batches in
  // progress there, by the load (kPaper), or mini-batches that wait for the `after`
  // components after it.
  int64_t versions(Load load) const {
    return 1 + (load.after + load.own - 1) / load.own;
  }
  int64_t versions(int after, int replicas) const {
    return (after + replicas - 1) / replicas;
  }

 private:
  CostModel model_;
  bool counts_transfers_;
};

}  // namespace aikido::pipeline

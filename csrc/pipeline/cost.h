// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What a stage costs, in one of two models, and what it keeps in memory. Seconds are
// those of one mini-batch, bytes those of one machine. Pure; any thread.
//
// A stage has `replicas` components of one level, which take mini-batches in turns and
// add up their gradients at that level's bandwidth. See README.md for the formulas.

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "pipeline/cut_graph.h"

namespace aikido::pipeline {

enum class CostModel {
  kPaper,          // as PipeDream is described: computing and adding up overlap
  kPublishedCode,  // as its published optimizer adds: one after the other
};

std::string_view name_of(CostModel model);  // "paper", "published_code"
Result<CostModel> cost_model_named(std::string_view name);

// Components of one level that are connected with each other: machines at the lowest,
// groups of machines above.
struct Level {
  int count = 1;         // of components in one of the next level
  double bandwidth = 0;  // between them, bytes a second
  int below = 1;         // `count` of the level below; 1 at the lowest
  int64_t machines = 1;  // in one component
};

// Machines that come after a component in its pipeline, for each of its own: a
// fraction.
struct Load {
  int64_t after = 0, own = 1;

  // Of each of `replicas` components that have `components` more after them, inside of
  // something with this load.
  Load inside(int components, int replicas, const Level& level) const;
  friend auto operator<=>(const Load&, const Load&) = default;
};

class Cost {
 public:
  Cost(CostModel model, bool counts_transfers)
      : model_(model), counts_transfers_(counts_transfers) {}

  CostModel model() const { return model_; }
  // To add up gradients of so many bytes. `is_first`: the stage begins its block.
  double sync_s(double parameter_bytes, int replicas, const Level& level,
                bool is_first) const;
  // Of a stage whose components need `inner_s` each.
  double stage_s(double inner_s, double sync_s, int replicas) const {
    const double together = model_ == CostModel::kPaper
                                ? (inner_s > sync_s ? inner_s : sync_s)
                                : inner_s + sync_s;
    return together / replicas;
  }
  // Of a stage between two cuts with others: outputs one way, gradients the other. The
  // first stage has none: what it passes on is what the second takes.
  double transfer_s(const Cut& from, const Cut& to, bool is_last, int replicas,
                    const Level& level) const;
  // What leaves a cut in one direction.
  double output_bytes(const Cut& cut) const {
    return model_ == CostModel::kPaper ? cut.crossing_bytes : cut.frontier_bytes;
  }

  // Mini-batches of which a stage keeps activations and weights: under way there, by
  // the load (kPaper), or waiting for the `after` components after it.
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

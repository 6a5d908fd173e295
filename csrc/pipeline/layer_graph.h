// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Layers as a graph of their dependencies, without the layers that have no choice (note
// in cut_graph.h). A plain value: one thread at a time.

#include <cstddef>
#include <vector>

#include "pipeline/profile.h"

namespace aikido::pipeline {

struct LayerGraph {
  // Requires: a valid profile.
  explicit LayerGraph(const Profile& profile);

  bool is_source(size_t layer) const { return needs[layer].empty(); }
  bool is_sink(size_t layer) const { return needed_by[layer].empty(); }
  // Removes the layer and its edges.
  void drop(size_t layer);
  // The kept layers, each after the layers that it needs.
  std::vector<size_t> in_order() const;

  size_t count;
  std::vector<bool> is_kept;
  std::vector<std::vector<size_t>> needs, needed_by;
};

}  // namespace aikido::pipeline

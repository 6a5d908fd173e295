// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/branches.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace aikido::pipeline {
namespace {

// Joins the groups of two layers; the result has the number of the second.
void join(Groups& groups, size_t layer, size_t into) {
  // Copies, because replace() takes references.
  const size_t before = groups[layer], after = groups[into];
  std::replace(groups.begin(), groups.end(), before, after);
}

std::vector<bool> free_groups(const Profile& profile, const Groups& groups) {
  std::vector<bool> is_free(groups.size(), true);
  for (size_t i = 0; i < groups.size(); ++i) {
    const Layer& layer = profile.layers[i];
    if (layer.forward_ms + layer.backward_ms + layer.parameter_bytes > 0)
      is_free[groups[i]] = false;
  }
  return is_free;
}

}  // namespace

Groups each_alone(const LayerGraph& graph) {
  Groups groups(graph.count);
  std::iota(groups.begin(), groups.end(), size_t{0});
  return groups;
}

LayerGraph graph_of(const LayerGraph& layers, const Groups& groups) {
  LayerGraph made = layers;
  for (size_t i = 0; i < layers.count; ++i) {
    made.is_kept[i] = layers.is_kept[i] && groups[i] == i;
    made.needs[i].clear();
    made.needed_by[i].clear();
  }
  for (size_t to = 0; to < layers.count; ++to)
    for (const size_t from : layers.needs[to])
      if (groups[from] != groups[to]) {
        made.needs[groups[to]].push_back(groups[from]);
        made.needed_by[groups[from]].push_back(groups[to]);
      }
  for (auto* side : {&made.needs, &made.needed_by})
    for (auto& others : *side) {
      std::sort(others.begin(), others.end());
      others.erase(std::unique(others.begin(), others.end()), others.end());
    }
  return made;
}

Groups join_free_layers(const Profile& profile, const LayerGraph& layers,
                        Groups groups) {
  for (Groups before; before != groups;) {
    before = groups;
    const LayerGraph graph = graph_of(layers, groups);
    const auto is_free = free_groups(profile, groups);
    for (const size_t i : graph.in_order()) {
      if (!is_free[i]) continue;
      const auto& needs = graph.needs[i];
      const auto& needed_by = graph.needed_by[i];
      if (needs.size() == 1 &&
          (needed_by.empty() || graph.needed_by[needs.front()].size() == 1))
        join(groups, i, needs.front());
      else if (needed_by.size() == 1)
        join(groups, i, needed_by.front());
    }
  }
  return groups;
}

Groups join_branches(const LayerGraph& layers, Groups groups) {
  const LayerGraph graph = graph_of(layers, groups);
  const auto order = graph.in_order();
  const bool has_one_source = std::count_if(order.begin(), order.end(), [&](size_t i) {
                                return graph.is_source(i);
                              }) == 1;
  std::vector<bool> in_branch(graph.count);
  for (const size_t i : order) {
    const auto& needs = graph.needs[i];
    if (needs.empty()) in_branch[i] = !has_one_source;
    if (needs.size() != 1) continue;
    if (graph.needed_by[needs.front()].size() > 1) {
      in_branch[i] = true;
    } else if (in_branch[needs.front()]) {
      in_branch[i] = true;
      join(groups, i, needs.front());
    }
  }
  return groups;
}

Groups join_meetings(const LayerGraph& layers, Groups groups) {
  const LayerGraph graph = graph_of(layers, groups);
  for (const size_t i : graph.in_order()) {
    if (graph.needs[i].size() != 1 || graph.needed_by[i].size() != 1) continue;
    const size_t meeting = graph.needed_by[i].front();
    if (graph.needs[meeting].size() > 1) join(groups, i, meeting);
  }
  return groups;
}

}  // namespace aikido::pipeline

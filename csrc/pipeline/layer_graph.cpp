// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/layer_graph.h"

namespace aikido::pipeline {

LayerGraph::LayerGraph(const Profile& profile)
    : count(profile.layers.size()),
      is_kept(count, true),
      needs(count),
      needed_by(count) {
  for (const Edge& edge : profile.edges) {
    needs[edge.to].push_back(edge.from);
    needed_by[edge.from].push_back(edge.to);
  }
}

void LayerGraph::drop(size_t layer) {
  is_kept[layer] = false;
  for (const size_t from : needs[layer]) std::erase(needed_by[from], layer);
  for (const size_t to : needed_by[layer]) std::erase(needs[to], layer);
  needs[layer].clear();
  needed_by[layer].clear();
}

std::vector<size_t> LayerGraph::in_order() const {
  std::vector<size_t> order, open(count);
  for (size_t i = 0; i < count; ++i) {
    open[i] = needs[i].size();
    if (is_kept[i] && open[i] == 0) order.push_back(i);
  }
  for (size_t at = 0; at < order.size(); ++at)
    for (const size_t to : needed_by[order[at]])
      if (--open[to] == 0) order.push_back(to);
  return order;
}

}  // namespace aikido::pipeline

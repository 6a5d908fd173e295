// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/cut_graph.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/text.h"

namespace aikido::pipeline {
namespace {

// The layers that are a choice, with what each needs and is needed by.
struct Graph {
  explicit Graph(const Profile& profile);

  bool is_source(size_t layer) const { return needs[layer].empty(); }
  bool is_sink(size_t layer) const { return needed_by[layer].empty(); }
  void drop(size_t layer);

  size_t count;
  std::vector<bool> is_kept;
  std::vector<std::vector<size_t>> needs, needed_by;
  // Each kept layer with all that it needs, directly or not.
  std::vector<LayerSet> with_needs;
};

Graph::Graph(const Profile& profile)
    : count(profile.layers.size()),
      is_kept(count, true),
      needs(count),
      needed_by(count) {
  for (const Edge& edge : profile.edges) {
    needs[edge.to].push_back(edge.from);
    needed_by[edge.from].push_back(edge.to);
  }
}

void Graph::drop(size_t layer) {
  is_kept[layer] = false;
  for (const size_t from : needs[layer]) std::erase(needed_by[from], layer);
  for (const size_t to : needed_by[layer]) std::erase(needs[to], layer);
  needs[layer].clear();
  needed_by[layer].clear();
}

std::vector<CutGraph::Attached> drop_what_is_no_choice(const Profile& profile,
                                                       Graph& graph) {
  std::vector<CutGraph::Attached> dropped;
  const auto begins = [&](size_t layer, std::string_view text) {
    return std::string_view(profile.layers[layer].description).starts_with(text);
  };
  std::vector<size_t> chosen;
  for (size_t i = 0; i < graph.count; ++i)
    if (graph.is_source(i) && begins(i, "Input")) chosen.push_back(i);
  for (const size_t i : chosen) {
    dropped.push_back({i, i});
    graph.drop(i);
  }
  chosen.clear();
  for (size_t i = 0; i < graph.count; ++i)
    if (graph.is_kept[i] && graph.is_sink(i) && !graph.is_source(i) &&
        begins(i, "__getitem__"))
      chosen.push_back(i);
  for (const size_t i : chosen) {
    dropped.push_back({i, graph.needs[i].front()});
    graph.drop(i);
  }
  return dropped;
}

// Requires: no cycle.
void fill_with_needs(Graph& graph) {
  std::vector<size_t> open(graph.count), free;
  graph.with_needs.assign(graph.count, LayerSet(graph.count));
  for (size_t i = 0; i < graph.count; ++i) {
    open[i] = graph.needs[i].size();
    if (graph.is_kept[i] && open[i] == 0) free.push_back(i);
  }
  while (!free.empty()) {
    const size_t layer = free.back();
    free.pop_back();
    graph.with_needs[layer].insert(layer);
    for (const size_t to : graph.needed_by[layer]) {
      graph.with_needs[to].add(graph.with_needs[layer]);
      if (--open[to] == 0) free.push_back(to);
    }
  }
}

// All cuts, in an order of their own; more than `most` when there are more.
std::vector<LayerSet> find_cuts(const Graph& graph, size_t first, size_t most) {
  std::unordered_set<LayerSet, LayerSetHash> known{graph.with_needs[first]};
  std::vector<LayerSet> found{graph.with_needs[first]};
  for (size_t at = 0; at < found.size() && found.size() <= most; ++at) {
    LayerSet next(graph.count);  // what takes from a layer that is done
    found[at].for_each([&](size_t layer) {
      for (const size_t to : graph.needed_by[layer]) next.insert(to);
    });
    next.remove(found[at]);
    next.for_each([&](size_t layer) {
      LayerSet larger = found[at];
      larger.add(graph.with_needs[layer]);
      if (known.insert(larger).second) found.push_back(std::move(larger));
    });
  }
  return found;
}

// For each layer: what it needs and something else needs, too.
std::vector<LayerSet> find_shared(const Graph& graph) {
  std::vector<LayerSet> shared(graph.count, LayerSet(graph.count));
  for (size_t layer = 0; layer < graph.count; ++layer) {
    const LayerSet& all = graph.with_needs[layer];
    all.for_each([&](size_t need) {
      if (need == layer) return;
      for (const size_t to : graph.needed_by[need])
        if (!all.contains(to)) shared[layer].insert(need);
    });
  }
  return shared;
}

Cut measure(const Profile& profile, const Graph& graph,
            const std::vector<LayerSet>& shared, LayerSet layers) {
  Cut cut;
  LayerSet crossing(graph.count), frontier(graph.count);
  layers.for_each([&](size_t i) {
    const Layer& layer = profile.layers[i];
    cut.compute_s += (layer.forward_ms + layer.backward_ms) / 1000;
    cut.activation_bytes += layer.activation_bytes;
    cut.parameter_bytes += layer.parameter_bytes;
    const auto& to = graph.needed_by[i];
    const auto is_done = [&](size_t other) { return layers.contains(other); };
    if (!std::all_of(to.begin(), to.end(), is_done)) crossing.insert(i);
    if (std::none_of(to.begin(), to.end(), is_done)) {
      frontier.insert(i);
      frontier.add(shared[i]);
    }
  });
  crossing.for_each(
      [&](size_t i) { cut.crossing_bytes += profile.layers[i].activation_bytes; });
  frontier.for_each(
      [&](size_t i) { cut.frontier_bytes += profile.layers[i].activation_bytes; });
  cut.layers = std::move(layers);
  return cut;
}

}  // namespace

Result<CutGraph> CutGraph::make(const Profile& profile, size_t max_cuts) {
  AIKIDO_TRY(validate(profile));
  Graph graph(profile);
  CutGraph made;
  made.attached_ = drop_what_is_no_choice(profile, graph);
  fill_with_needs(graph);
  size_t first = graph.count;
  LayerSet kept(graph.count);
  for (size_t i = graph.count; i-- > 0;) {
    if (graph.is_kept[i]) kept.insert(i);
    if (graph.is_kept[i] && graph.is_source(i)) first = i;
  }
  if (first == graph.count)
    return Status(Code::kInvalidArgument,
                  "the profile has inputs and nothing else; it needs one layer that "
                  "computes");
  auto found = find_cuts(graph, first, max_cuts);
  if (found.size() > max_cuts)
    return Status(Code::kInvalidArgument,
                  concat("the layers can be cut in more than ", max_cuts,
                         " ways, because of branches side by side; make one layer of "
                         "each branch, or raise max_cuts"));
  std::sort(found.begin(), found.end());
  LayerSet lost = kept;
  lost.remove(found.back());
  if (lost.count() > 0) {
    size_t example = 0;
    lost.for_each([&](size_t i) { example = i; });
    return Status(
        Code::kInvalidArgument,
        concat("nothing connects the layers \"", printable(profile.layers[first].id),
               "\" and \"", printable(profile.layers[example].id),
               "\"; make a profile of each part"));
  }
  const auto shared = find_shared(graph);
  for (auto& layers : found)
    made.cuts_.push_back(measure(profile, graph, shared, std::move(layers)));
  made.before_.resize(made.size());
  made.depth_.assign(made.size(), 1);
  for (size_t j = 0; j < made.size(); ++j)
    for (size_t k = 0; k < j; ++k)
      if (made[j].layers.contains(made[k].layers)) {
        made.before_[j].push_back(static_cast<uint32_t>(k));
        made.depth_[j] = std::max(made.depth_[j], made.depth_[k] + 1);
      }
  return made;
}

}  // namespace aikido::pipeline

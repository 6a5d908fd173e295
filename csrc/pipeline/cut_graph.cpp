// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/cut_graph.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "pipeline/branches.h"
#include "pipeline/layer_graph.h"

namespace aikido::pipeline {
namespace {

std::vector<CutGraph::Attached> drop_what_is_no_choice(const Profile& profile,
                                                       LayerGraph& graph) {
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

// Each kept layer of `graph` with its group and all that the group needs, directly or
// indirectly.
std::vector<LayerSet> closures(const LayerGraph& graph, const Groups& groups) {
  std::vector<LayerSet> found(graph.count, LayerSet(graph.count));
  for (size_t i = 0; i < graph.count; ++i) found[groups[i]].insert(i);
  for (const size_t i : graph.in_order())
    for (const size_t from : graph.needs[i]) found[i].add(found[from]);
  return found;
}

// All cuts that separate no group, in any order. More than max_cuts if there are more.
std::vector<LayerSet> find_cuts(const LayerGraph& layers, const Groups& groups,
                                size_t first, const CutOptions& options) {
  const LayerGraph graph = graph_of(layers, groups);
  const auto with_needs = closures(graph, groups);
  std::unordered_set<LayerSet, LayerSetHash> known;
  std::vector<LayerSet> found;
  const auto take = [&](const LayerSet& cut, size_t layer) {
    LayerSet larger = cut;
    larger.add(with_needs[layer]);
    if (known.insert(larger).second) found.push_back(std::move(larger));
  };
  const bool from_first = options.rule == CutRule::kFromFirstSource;
  // By group, if it may come next: all layers that must be done before.
  std::vector<std::pair<size_t, LayerSet>> before;
  if (!from_first)
    for (const size_t i : graph.in_order()) {
      before.emplace_back(i, LayerSet(graph.count));
      for (const size_t from : graph.needs[i])
        before.back().second.add(with_needs[from]);
    }
  const auto extend = [&](const LayerSet& done) {
    for (const auto& [layer, needs] : before)
      if (!done.contains(layer) && done.contains(needs)) take(done, layer);
    if (!from_first) return;
    LayerSet next(graph.count);  // layers that need a layer of the cut
    done.for_each([&](size_t layer) {
      for (const size_t to : graph.needed_by[layer]) next.insert(to);
    });
    next.remove(done);
    next.for_each([&](size_t layer) { take(done, layer); });
  };
  const LayerSet nothing(graph.count);
  if (from_first)
    take(nothing, groups[first]);
  else
    extend(nothing);
  for (size_t at = 0; at < found.size() && found.size() <= options.max_cuts; ++at) {
    const LayerSet done = found[at];  // a copy, because `found` may reallocate
    extend(done);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// For each layer: the layers that it and another layer need.
std::vector<LayerSet> find_shared(const LayerGraph& graph) {
  const auto with_needs = closures(graph, each_alone(graph));
  std::vector<LayerSet> shared(graph.count, LayerSet(graph.count));
  for (size_t layer = 0; layer < graph.count; ++layer) {
    const LayerSet& all = with_needs[layer];
    all.for_each([&](size_t need) {
      if (need == layer) return;
      for (const size_t to : graph.needed_by[need])
        if (!all.contains(to)) shared[layer].insert(need);
    });
  }
  return shared;
}

LayerCut measure(const Profile& profile, const LayerGraph& graph,
                 const std::vector<LayerSet>& shared, LayerSet layers) {
  LayerCut cut;
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

// The cuts, and the layers that were joined for them.
struct Found {
  std::vector<LayerSet> cuts;
  std::string note;
};

// Joins layers while branches cause too many cuts.
Found find_few_cuts(const Profile& profile, const LayerGraph& graph, size_t first,
                    const CutOptions& options) {
  const size_t aim = std::min(options.join_above, options.max_cuts);
  Groups groups = each_alone(graph);
  // Layers in a row have as many cuts as layers, so branches are not the cause.
  const size_t num_layers = graph.in_order().size();
  CutOptions at_least_layers = options;
  at_least_layers.max_cuts = std::max(options.max_cuts, num_layers);
  Found found{find_cuts(graph, groups, first, at_least_layers), {}};
  if (found.cuts.size() <= num_layers) return found;
  const auto try_joined = [&](Groups joined, std::string_view what) {
    if (joined == groups) return false;
    groups = std::move(joined);
    found.cuts = find_cuts(graph, groups, first, options);
    found.note = concat("the layers can be cut in more than ", aim, " ways; ", what,
                        ", which leaves ", found.cuts.size(),
                        " ways, so a faster plan may exist");
    return true;
  };
  if (found.cuts.size() > aim && options.rule == CutRule::kAll)
    try_joined(join_free_layers(profile, graph, groups),
               "layers that take no time are joined with a neighbour");
  if (found.cuts.size() > aim)
    try_joined(join_branches(graph, groups), "each branch is joined to one layer");
  while (found.cuts.size() > aim &&
         try_joined(join_branches(graph, join_meetings(graph, groups)),
                    "branches are joined with the layer where they meet")) {
  }
  return found;
}

Status too_many(const LayerGraph& graph, const CutOptions& options) {
  size_t sources = 0;
  for (size_t i = 0; i < graph.count; ++i)
    if (graph.is_kept[i] && graph.is_source(i)) ++sources;
  const bool has_towers = sources > 1 && options.rule == CutRule::kAll;
  return {Code::kInvalidArgument,
          concat("the layers can be cut in more than ", options.max_cuts,
                 " ways, even with each branch as one layer; profile layers that "
                 "belong together as one, raise max_cuts",
                 has_towers ? concat(", or take cost model published_code, which keeps "
                                     "the ",
                                     sources, " sources together")
                            : std::string())};
}

}  // namespace

Result<CutGraph> CutGraph::make(const Profile& profile, const CutOptions& options) {
  AIKIDO_TRY(validate(profile));
  LayerGraph graph(profile);
  CutGraph made;
  made.attached_ = drop_what_is_no_choice(profile, graph);
  size_t first = graph.count;  // first source
  LayerSet kept(graph.count);
  for (size_t i = graph.count; i-- > 0;) {
    if (graph.is_kept[i]) kept.insert(i);
    if (graph.is_kept[i] && graph.is_source(i)) first = i;
  }
  if (first == graph.count)
    return Status(Code::kInvalidArgument,
                  "the profile has inputs and nothing else; it needs one layer that "
                  "computes");
  auto found = find_few_cuts(profile, graph, first, options);
  if (found.cuts.size() > options.max_cuts) return too_many(graph, options);
  made.note_ = std::move(found.note);
  LayerSet lost = kept;
  lost.remove(found.cuts.back());
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
  for (auto& layers : found.cuts)
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

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "ordering/graph.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"

namespace aikido::ordering {
namespace {

Status check_op(const Op& op, size_t index) {
  if (op.name.empty()) return invalid(concat("op ", index, " has no name"));
  if (!std::isfinite(op.time_s) || op.time_s < 0)
    return invalid(concat("the time of op ", quoted(op.name), " is ", op.time_s,
                          " s; it takes a finite number from 0 up"));
  if (!std::isfinite(op.bytes) || op.bytes < 0)
    return invalid(concat("op ", quoted(op.name), " moves ", op.bytes,
                          " bytes; it takes a finite number from 0 up"));
  if (op.kind == OpKind::kCompute && op.bytes > 0)
    return invalid(concat("op ", quoted(op.name), " computes and moves ", op.bytes,
                          " bytes; only transfers move any"));
  return Status::ok();
}

Status check_edge(const Graph& graph, const Edge& edge) {
  const size_t count = graph.ops.size();
  if (edge.from >= count || edge.to >= count)
    return invalid(concat("an edge goes from op ", edge.from, " to op ", edge.to,
                          ", and there are ", count, " ops, from 0 on"));
  if (edge.from == edge.to)
    return invalid(concat("op ", quoted(graph.ops[edge.from].name), " needs itself"));
  return Status::ok();
}

// Shorter than the number of ops if there is a cycle.
std::vector<size_t> ordered(const Graph& graph) {
  const auto [before, after] = neighbours_of(graph);
  std::vector<size_t> missing(graph.ops.size());
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> free;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    missing[i] = before[i].size();
    if (missing[i] == 0) free.push(i);
  }
  std::vector<size_t> order;
  while (!free.empty()) {
    const size_t op = free.top();
    free.pop();
    order.push_back(op);
    for (const size_t next : after[op])
      if (--missing[next] == 0) free.push(next);
  }
  return order;
}

// Names of the ops of one cycle, for an error text. `order`: the ops that are in no
// cycle and need none.
std::string cycle_in(const Graph& graph, const std::vector<size_t>& order) {
  const auto before = neighbours_of(graph).before;
  std::vector<bool> is_done(graph.ops.size());
  for (const size_t op : order) is_done[op] = true;
  size_t at = 0;
  while (is_done[at]) ++at;
  // Each remaining op needs another remaining op. So a walk from op to needed op must
  // come back to an op of the walk.
  std::vector<size_t> path;
  std::vector<bool> is_on_path(graph.ops.size());
  while (!is_on_path[at]) {
    is_on_path[at] = true;
    path.push_back(at);
    at = *std::find_if(before[at].begin(), before[at].end(),
                       [&](size_t op) { return !is_done[op]; });
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), at));
  std::reverse(path.begin(), path.end());
  constexpr size_t kMost = 6;
  std::string text = quoted(graph.ops[path.front()].name);
  for (size_t i = 1; i < std::min(path.size(), kMost); ++i)
    text += concat(" -> ", quoted(graph.ops[path[i]].name));
  return concat(text, path.size() > kMost ? " -> ..." : "", " -> ",
                quoted(graph.ops[path.front()].name));
}

}  // namespace

Status validate(const Graph& graph) {
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    AIKIDO_TRY(check_op(graph.ops[i], i));
    if (!names.insert(graph.ops[i].name).second)
      return invalid(concat("two ops have the name ", quoted(graph.ops[i].name)));
  }
  for (const Edge& edge : graph.edges) AIKIDO_TRY(check_edge(graph, edge));
  const auto order = ordered(graph);
  if (order.size() < graph.ops.size())
    return invalid(concat("ops need each other in a cycle: ", cycle_in(graph, order)));
  return Status::ok();
}

Result<Graph> make_graph(
    std::vector<Op> ops,
    const std::vector<std::pair<std::string, std::string>>& edges) {
  Graph graph{std::move(ops), {}};
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < graph.ops.size(); ++i) places.emplace(graph.ops[i].name, i);
  for (const auto& [from, to] : edges) {
    for (const auto& name : {from, to})
      if (!places.contains(name))
        return invalid(concat("an edge goes from ", quoted(from), " to ", quoted(to),
                              ", and there is no op ", quoted(name)));
    graph.edges.push_back({places.at(from), places.at(to)});
  }
  AIKIDO_TRY(validate(graph));
  const auto key = [](const Edge& e) { return std::pair(e.from, e.to); };
  std::sort(graph.edges.begin(), graph.edges.end(),
            [&](const Edge& a, const Edge& b) { return key(a) < key(b); });
  graph.edges.erase(std::unique(graph.edges.begin(), graph.edges.end()),
                    graph.edges.end());
  return graph;
}

Graph with_link(Graph graph, const cost::LinkCost& link) {
  for (Op& op : graph.ops)
    if (op.kind == OpKind::kTransfer) op.time_s = link.time_s(op.bytes);
  return graph;
}

std::vector<size_t> transfers_of(const Graph& graph) {
  std::vector<size_t> found;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (graph.ops[i].kind == OpKind::kTransfer) found.push_back(i);
  return found;
}

Neighbours neighbours_of(const Graph& graph) {
  Neighbours of{std::vector<std::vector<size_t>>(graph.ops.size()),
                std::vector<std::vector<size_t>>(graph.ops.size())};
  for (const Edge& edge : graph.edges) {
    of.before[edge.to].push_back(edge.from);
    of.after[edge.from].push_back(edge.to);
  }
  for (auto* lists : {&of.before, &of.after})
    for (auto& list : *lists) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  return of;
}

std::vector<size_t> program_order(const Graph& graph) {
  auto order = ordered(graph);
  AIKIDO_CHECK(order.size() == graph.ops.size(), "a cycle: not validated");
  return order;
}

std::vector<size_t> first_uses(const Graph& graph) {
  const auto order = program_order(graph);
  std::vector<size_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  const auto after = neighbours_of(graph).after;
  std::vector<size_t> found;
  for (const size_t transfer : transfers_of(graph)) {
    size_t first = graph.ops.size();
    for (const size_t user : after[transfer]) first = std::min(first, place[user]);
    found.push_back(first);
  }
  return found;
}

Status check_order(const Graph& graph, const std::vector<size_t>& order) {
  std::vector<bool> is_there(graph.ops.size());
  for (const size_t op : order) {
    if (op >= graph.ops.size())
      return invalid(concat("the order has op ", op, ", and there are ",
                            graph.ops.size(), " ops, from 0 on"));
    const std::string name = quoted(graph.ops[op].name);
    if (graph.ops[op].kind != OpKind::kTransfer)
      return invalid(concat("the order has ", name, ", which is no transfer"));
    if (is_there[op]) return invalid(concat("the order has ", name, " twice"));
    is_there[op] = true;
  }
  for (const size_t transfer : transfers_of(graph))
    if (!is_there[transfer])
      return invalid(concat("the order leaves out ", quoted(graph.ops[transfer].name),
                            "; it takes all transfers, each once"));
  return Status::ok();
}

}  // namespace aikido::ordering

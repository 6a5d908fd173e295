// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Graphs for tests: fixed graphs and random graphs.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ordering/graph.h"

namespace aikido::ordering::testing {

// Builder that adds ops by name. Edges are given by the names of the needed ops.
class Builder {
 public:
  Builder& compute(const std::string& name, double time_s,
                   const std::vector<std::string>& needs = {}) {
    return add({name, OpKind::kCompute, time_s, 0}, needs);
  }
  Builder& transfer(const std::string& name, double time_s,
                    const std::vector<std::string>& needs = {}) {
    return add({name, OpKind::kTransfer, time_s, time_s * 1e6}, needs);
  }
  Graph graph() const {
    auto made = make_graph(ops_, edges_);
    AIKIDO_CHECK(made.is_ok(), made.status().message());
    return *made;
  }

 private:
  Builder& add(Op op, const std::vector<std::string>& needs) {
    for (const auto& before : needs) edges_.emplace_back(before, op.name);
    ops_.push_back(std::move(op));
    return *this;
  }
  std::vector<Op> ops_;
  std::vector<std::pair<std::string, std::string>> edges_;
};

inline std::string numbered(const char* what, size_t number) {
  return concat(what, number);
}

// r0..rN-1, each needed by its c, and each c needed by the next c. Times by number.
inline Graph chain(const std::vector<double>& transfers,
                   const std::vector<double>& computes) {
  Builder build;
  for (size_t i = 0; i < transfers.size(); ++i)
    build.transfer(numbered("r", i), transfers[i]);
  for (size_t i = 0; i < transfers.size(); ++i) {
    std::vector<std::string> needs{numbered("r", i)};
    if (i > 0) needs.push_back(numbered("c", i - 1));
    build.compute(numbered("c", i), computes[i], needs);
  }
  return build.graph();
}

// The same graph without the edges between the c.
inline Graph parallel(const std::vector<double>& transfers,
                      const std::vector<double>& computes) {
  Builder build;
  for (size_t i = 0; i < transfers.size(); ++i) {
    build.transfer(numbered("r", i), transfers[i]);
    build.compute(numbered("c", i), computes[i], {numbered("r", i)});
  }
  return build.graph();
}

// Transfers without dependencies, and computing ops that need some transfers and some
// earlier computing ops. Times are whole numbers, so that sums are exact.
inline Graph random_graph(std::mt19937& dice, size_t transfers) {
  const auto draw = [&](uint32_t most) { return static_cast<double>(dice() % most); };
  Builder build;
  for (size_t i = 0; i < transfers; ++i) build.transfer(numbered("r", i), 1 + draw(9));
  const size_t computes = 1 + dice() % (2 * transfers);
  for (size_t i = 0; i < computes; ++i) {
    std::vector<std::string> needs;
    for (size_t r = 0; r < transfers; ++r)
      if (dice() % transfers == 0) needs.push_back(numbered("r", r));
    for (size_t c = 0; c < i; ++c)
      if (dice() % (i + 1) == 0) needs.push_back(numbered("c", c));
    build.compute(numbered("c", i), draw(10), needs);
  }
  return build.graph();
}

// A backward pass over a chain of layers, their gradients, and the forward pass of the
// next iteration. Times are whole numbers from 1 on.
inline Graph random_iteration(std::mt19937& dice, size_t layers) {
  const auto draw = [&](uint32_t most) {
    return static_cast<double>(1 + dice() % most);
  };
  Builder build;
  for (size_t i = layers; i-- > 0;) {
    std::vector<std::string> needs;
    if (i + 1 < layers) needs.push_back(numbered("b", i + 1));
    build.compute(numbered("b", i), draw(5), needs);
    build.transfer(numbered("g", i), draw(7), {numbered("b", i)});
  }
  for (size_t i = 0; i < layers; ++i)
    build.compute(numbered("f", i), draw(3),
                  {numbered("g", i), i == 0 ? "b0" : numbered("f", i - 1)});
  return build.graph();
}

inline std::vector<std::string> names_of(const Graph& graph,
                                         const std::vector<size_t>& ops) {
  std::vector<std::string> names;
  for (const size_t op : ops) names.push_back(graph.ops[op].name);
  return names;
}

inline size_t op_named(const Graph& graph, const std::string& name) {
  size_t i = 0;
  while (graph.ops.at(i).name != name) ++i;
  return i;
}

}  // namespace aikido::ordering::testing

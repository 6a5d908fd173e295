// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Graph of the ops of one training iteration: computing, transfers, and their
// dependencies. Plain values; any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cost/link_cost.h"

namespace aikido::ordering {

enum class OpKind : uint8_t {
  kCompute,   // uses a processor
  kTransfer,  // uses the link: a parameter that is received, or a gradient that is
              // reduced
};

struct Op {
  std::string name;
  OpKind kind = OpKind::kCompute;
  double time_s = 0;  // alone on its resource
  double bytes = 0;   // bytes of a transfer; 0 for computing
};

// `to` can begin when `from` is done. Indices of ops.
struct Edge {
  size_t from = 0, to = 0;
  friend bool operator==(const Edge&, const Edge&) = default;
};

struct Graph {
  std::vector<Op> ops;
  std::vector<Edge> edges;
};

// kInvalidArgument names the op. Refused are names that are empty or used twice, and
// times or sizes that are negative or not finite. Refused are also computing that moves
// bytes, edges with an invalid end or with equal ends, and cycles. A graph without ops
// is valid.
Status validate(const Graph& graph);

// Valid graph, or kInvalidArgument. Edges are pairs of names; duplicates count once.
Result<Graph> make_graph(std::vector<Op> ops,
                         const std::vector<std::pair<std::string, std::string>>& edges);

// Same graph with the transfer times of the link. Requires: both are valid.
Graph with_link(Graph graph, const cost::LinkCost& link);

// The functions below require a valid graph.

// Indices of the transfers, ascending.
std::vector<size_t> transfers_of(const Graph& graph);

struct Neighbours {
  std::vector<std::vector<size_t>> before, after;  // by op, ascending
};
Neighbours neighbours_of(const Graph& graph);

// Each op after all that it needs. If several ops may be next, the first of the list.
// So a list that is already in such an order stays unchanged.
std::vector<size_t> program_order(const Graph& graph);

// By transfer of `transfers_of`: position of its first user in `program_order`; the
// number of ops if it has none.
std::vector<size_t> first_uses(const Graph& graph);

// kInvalidArgument names the op if `order` has a transfer twice, contains an op that is
// no transfer, or omits a transfer.
Status check_order(const Graph& graph, const std::vector<size_t>& order);

}  // namespace aikido::ordering

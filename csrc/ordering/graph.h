// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One iteration of a training as a graph of ops: what is computed, what is transferred,
// and what needs what. Plain values; any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace aikido::ordering {

enum class OpKind : uint8_t {
  kCompute,   // takes a processor
  kTransfer,  // takes the link: a parameter that is received, a gradient that is
              // reduced
};

struct Op {
  std::string name;
  OpKind kind = OpKind::kCompute;
  double time_s = 0;  // of its own, with nothing else on its resource
  double bytes = 0;   // that a transfer moves; of computing 0
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

// What can be sent, and what it takes: time = alpha + beta * bytes (Hockney, "The
// communication challenge for MPP", Parallel Computing 20(3), 1994).
struct LinkCost {
  double alpha_s = 0;  // of each transfer, whatever its size
  double beta_s = 0;   // of each byte
  double time_s(double bytes) const { return alpha_s + beta_s * bytes; }
};

// kInvalidArgument with a sentence that names the op: a name is empty or there twice, a
// time or size is negative or no number, computing moves bytes, an edge ends nowhere or
// where it begins, or edges make a cycle. A graph without ops is valid.
Status validate(const Graph& graph);

// kInvalidArgument with a sentence: alpha or beta is negative or no number.
Status validate(const LinkCost& link);

// A valid graph, or kInvalidArgument. Edges are pairs of names; one that is there twice
// counts once.
Result<Graph> make_graph(std::vector<Op> ops,
                         const std::vector<std::pair<std::string, std::string>>& edges);

// The same graph with the times of its transfers as the link has it. Both are valid.
Graph with_link(Graph graph, const LinkCost& link);

// The rest takes a valid graph.

// Indices of the transfers, ascending.
std::vector<size_t> transfers_of(const Graph& graph);

struct Neighbours {
  std::vector<std::vector<size_t>> before, after;  // by op, ascending
};
Neighbours neighbours_of(const Graph& graph);

// Each op after all that it needs; of those that could be next, the first of the list.
// So a list that is in such an order is kept.
std::vector<size_t> program_order(const Graph& graph);

// By transfer of `transfers_of`: where in `program_order` its first user is; the number
// of ops where it has none.
std::vector<size_t> first_uses(const Graph& graph);

// kInvalidArgument with a sentence that names the op: `order` has a transfer twice, one
// that is none, or leaves one out.
Status check_order(const Graph& graph, const std::vector<size_t>& order);

}  // namespace aikido::ordering

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "ordering/tictac.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

namespace aikido::ordering {
namespace {

// Finds, in one pass, the transfers that no other beats by the first part of the rule.
// Transfer b is beaten by an a with M_a < P_a and M_a < M_b, or with P_b < P_a if P_b <
// M_b.
class Unbeaten {
 public:
  Unbeaten(const Outstanding& outstanding, const std::vector<Properties>& of) {
    for (size_t i = 0; i < of.size(); ++i) {
      if (!outstanding.has(i)) continue;
      if (of[i].m < of[i].p) least_m_ = std::min(least_m_, of[i].m);
      most_p_ = std::max(most_p_, of[i].p);
    }
  }
  bool has(const Properties& b) const {
    return b.m <= least_m_ && !(b.p < b.m && b.p < most_p_);
  }

 private:
  double least_m_ = std::numeric_limits<double>::infinity();
  double most_p_ = 0;
};

}  // namespace

bool is_before(const Properties& a, const Properties& b) {
  const double of_a = std::min(b.p, a.m), of_b = std::min(a.p, b.m);
  return of_a != of_b ? of_a < of_b : a.m_plus < b.m_plus;
}

std::vector<Placed> tic(const Graph& graph) {
  const auto transfers = transfers_of(graph);
  const auto uses = first_uses(graph);
  const auto of = Outstanding(graph, TimeOracle::kGeneral).properties();
  std::vector<size_t> order(transfers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(of[a].m_plus, uses[a], a) < std::tuple(of[b].m_plus, uses[b], b);
  });
  std::vector<Placed> placed;
  for (size_t i = 0; i < order.size(); ++i) {
    const bool is_tie = i > 0 && of[order[i]].m_plus == of[order[i - 1]].m_plus;
    placed.push_back({transfers[order[i]], is_tie ? placed.back().place : i});
  }
  return placed;
}

std::vector<Placed> tac(const Graph& graph) {
  const auto transfers = transfers_of(graph);
  const auto uses = first_uses(graph);
  Outstanding outstanding(graph, TimeOracle::kMeasured);
  std::vector<Placed> placed;
  while (outstanding.size() > 0) {
    const auto of = outstanding.properties();
    const Unbeaten unbeaten(outstanding, of);
    std::optional<size_t> least;
    for (size_t i = 0; i < transfers.size(); ++i) {
      if (!outstanding.has(i) || !unbeaten.has(of[i])) continue;
      if (!least ||
          std::pair(of[i].m_plus, uses[i]) < std::pair(of[*least].m_plus, uses[*least]))
        least = i;
    }
    placed.push_back({transfers[*least], placed.size()});
    outstanding.complete(*least);
  }
  return placed;
}

std::vector<size_t> ops_of(const std::vector<Placed>& placed) {
  std::vector<size_t> ops;
  for (const Placed& it : placed) ops.push_back(it.op);
  return ops;
}

}  // namespace aikido::ordering

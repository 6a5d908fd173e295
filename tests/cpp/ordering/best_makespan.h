// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Shortest time of an iteration on one processor, for transfers without dependencies.
// It is a dynamic programme over sets of transfers, and shares no code with the
// simulator.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "ordering/graph.h"

namespace aikido::ordering::testing {

// After the k-th transfer has arrived, all computing that needs it or a later transfer
// is still to be done. So the time of an order is the maximum of the total computing
// time and, for each k, the arrival time plus that remaining computing time. A
// processor that never idles while it has work reaches this time, in any order of
// computing. Arrival time and remaining work depend only on the set of earlier
// transfers, not on their order.
inline double best_makespan(const Graph& graph) {
  const auto transfers = transfers_of(graph);
  AIKIDO_CHECK(transfers.size() <= 16, transfers.size(), " transfers are too many");
  const auto before = neighbours_of(graph).before;
  std::vector<uint32_t> dep(graph.ops.size());
  for (size_t i = 0; i < transfers.size(); ++i) {
    dep[transfers[i]] = 1u << i;
    AIKIDO_CHECK(before[transfers[i]].empty(), "transfer ", i, " needs something");
  }
  for (const size_t op : program_order(graph))
    for (const size_t needed : before[op]) dep[op] |= dep[needed];
  const size_t sets = size_t{1} << transfers.size();
  std::vector<double> sent(sets), left(sets), best(sets);
  for (uint32_t set = 0; set < sets; ++set) {
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      const bool is_here = (dep[op] & ~set) == 0;
      const bool is_transfer = graph.ops[op].kind == OpKind::kTransfer;
      if (is_transfer && is_here) sent[set] += graph.ops[op].time_s;
      if (!is_transfer && !is_here) left[set] += graph.ops[op].time_s;
    }
  }
  double computing = 0;
  for (const Op& op : graph.ops)
    if (op.kind == OpKind::kCompute) computing += op.time_s;
  best[0] = computing;
  for (uint32_t set = 1; set < sets; ++set) {
    best[set] = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < transfers.size(); ++i) {
      const uint32_t rest = set & ~(1u << i);
      if (rest == set) continue;
      best[set] = std::min(best[set], std::max(best[rest], sent[set] + left[rest]));
    }
  }
  return best[sets - 1];
}

}  // namespace aikido::ordering::testing

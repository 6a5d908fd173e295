// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "ordering/best_order.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ordering/efficiency.h"

namespace aikido::ordering {
Result<BestOrder> best_order(const Graph& graph, SimulateOptions options) {
  AIKIDO_TRY(validate(graph));
  if (options.link == LinkRule::kFifo)
    return invalid("fifo has no order; the best one is looked for with other rules");
  options.order = transfers_of(graph);
  if (options.order.size() > kMostTransfersToSearch)
    return invalid(concat("there are ", options.order.size(),
                          " transfers; all orders are looked at for ",
                          kMostTransfersToSearch, " at most"));
  const Bounds bounds = bounds_of(graph);
  std::optional<BestOrder> best;
  Status refusal;
  do {
    auto timeline = simulate(graph, options);
    if (!timeline) {
      if (refusal.is_ok()) refusal = timeline.status();
      continue;
    }
    if (!best || timeline->makespan_s < best->makespan_s)
      best = BestOrder{options.order, timeline->makespan_s};
    const double least_s =
        std::max(bounds.communication_s, bounds.computation_s / options.processors);
    if (best->makespan_s <= least_s) break;
  } while (std::next_permutation(options.order.begin(), options.order.end()));
  if (!best) return refusal;
  return std::move(*best);
}

}  // namespace aikido::ordering

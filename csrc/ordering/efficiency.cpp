// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "ordering/efficiency.h"

#include <algorithm>
#include <limits>

namespace aikido::ordering {

double Bounds::lower_s() const {
  return std::max(communication_s, computation_s);
}

double Bounds::ratio() const {
  if (computation_s > 0) return communication_s / computation_s;
  return std::numeric_limits<double>::infinity();
}

double Bounds::speed_up() const {
  // Without any time there is nothing to gain.
  return lower_s() > 0 ? (upper_s() - lower_s()) / lower_s() : 0;
}

double Bounds::efficiency(double makespan_s) const {
  const double room = upper_s() - lower_s();
  return room > 0 ? (upper_s() - makespan_s) / room : 1;
}

Bounds bounds_of(const Graph& graph) {
  Bounds bounds;
  for (const Op& op : graph.ops)
    (op.kind == OpKind::kTransfer ? bounds.communication_s : bounds.computation_s) +=
        op.time_s;
  return bounds;
}

}  // namespace aikido::ordering

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Quality of an order and the best possible quality: the scheduling efficiency of
// TicTac (MLSys 2019, section on quantifying performance). Pure; any thread.

#include "ordering/graph.h"

namespace aikido::ordering {

// Bounds for the time of one iteration on one link and one processor.
struct Bounds {
  double communication_s = 0;  // all transfers, one after another
  double computation_s = 0;    // all computing, one after another
  // U: nothing overlaps; the sum over all ops.
  double upper_s() const { return communication_s + computation_s; }
  // L: everything overlaps; the largest sum over the ops of one resource. May be out of
  // reach.
  double lower_s() const;
  // a = communication / computation; infinite without computing.
  double ratio() const;
  // S = (U - L) / L: gain of throughput of the best order over the worst, as a
  // fraction.
  double speed_up() const;
  // E = (U - makespan) / (U - L): 1 with full overlap, 0 without overlap. 1 if nothing
  // can overlap, because U and L are equal then.
  double efficiency(double makespan_s) const;
};

// Requires: `graph` is valid.
Bounds bounds_of(const Graph& graph);

}  // namespace aikido::ordering

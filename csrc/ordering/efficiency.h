// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How good an order is, and how good one could be: the scheduling efficiency of TicTac
// (MLSys 2019, its section on quantifying performance). Pure; any thread.

#include "ordering/graph.h"

namespace aikido::ordering {

// Of the time of one iteration on one link and one processor.
struct Bounds {
  double communication_s = 0;  // all transfers, one after another
  double computation_s = 0;    // all computing, one after another
  // U: nothing overlaps; the sum over all ops.
  double upper_s() const { return communication_s + computation_s; }
  // L: all overlaps; the largest sum over the ops of one resource. Not always reached.
  double lower_s() const;
  // a = communication / computation; infinite without computing.
  double ratio() const;
  // S = (U - L) / L: throughput that the best order can win over the worst, as a share.
  double speed_up() const;
  // E = (U - makespan) / (U - L): 1 where all overlaps, 0 where nothing does. 1 where
  // there is nothing to overlap, since U and L are equal.
  double efficiency(double makespan_s) const;
};

// `graph` is valid.
Bounds bounds_of(const Graph& graph);

}  // namespace aikido::ordering

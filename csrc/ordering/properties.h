// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What TicTac knows of each transfer that is still outstanding: Hashemi, Abdu Jyothi
// and Campbell, "TicTac: Accelerating Distributed Deep Learning with Communication
// Scheduling", MLSys 2019, arXiv 1803.03288, the section on op properties, with its
// algorithm "Property Update". Plain values; one thread at a time.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ordering/graph.h"

namespace aikido::ordering {

struct Properties {
  double m = 0;       // M: time of the transfer itself
  double p = 0;       // P: computing that waits for it alone
  double m_plus = 0;  // M+: least time of outstanding transfers, its own among them,
                      // until computing can begin that waits for it and others;
                      // infinite where nothing does
};

// Where times are from: of the graph, or 1 for a transfer and 0 for computing (the
// paper's general time oracle, which knows no times).
enum class TimeOracle : uint8_t { kMeasured, kGeneral };

// With dep(op) the transfers that can be reached backwards from an op (a transfer is
// its own only one), R the outstanding ones and D = dep(c) & R of a computing op c:
//
//   M(r)  = Time(r)
//   P(r)  = sum of Time(c) over c with D = {r}
//   M+(r) = min over c with r in D and |D| > 1 of: sum of Time(x) over x in D
class Outstanding {
 public:
  // All transfers of a valid graph. Calls take them by their place in `transfers_of`.
  Outstanding(const Graph& graph, TimeOracle oracle);

  size_t size() const { return left_; }
  bool has(size_t transfer) const { return is_left_[transfer]; }
  // It is here. Requires: it was outstanding.
  void complete(size_t transfer);
  // By transfer; of those that are not outstanding M alone means something. Sums are
  // made in the order of the list, so that equal sets have equal ones.
  std::vector<Properties> properties() const;

 private:
  // Computing ops with the same D count as one.
  struct Group {
    std::vector<size_t> waits_for;  // ascending
    double time = 0;
  };

  std::vector<double> times_;  // by transfer
  std::vector<bool> is_left_;  // by transfer
  std::vector<Group> groups_;
  size_t left_ = 0;
};

}  // namespace aikido::ordering

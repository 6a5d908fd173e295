// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Properties of outstanding transfers in TicTac: Hashemi, Abdu Jyothi and Campbell,
// "TicTac: Accelerating Distributed Deep Learning with Communication Scheduling", MLSys
// 2019, arXiv 1803.03288, section on op properties, algorithm "Property Update". Plain
// values; one thread at a time.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ordering/graph.h"

namespace aikido::ordering {

struct Properties {
  double m = 0;  // M: time of the transfer itself
  double p = 0;  // P: computing that waits for this transfer only
  double m_plus =
      0;  // M+: least time of outstanding transfers, including this one, until
          // computing can begin that waits for it and others; infinite if there is none
};

// Source of times: the graph, or 1 for a transfer and 0 for computing (the paper's
// general time oracle, which knows no times).
enum class TimeOracle : uint8_t { kMeasured, kGeneral };

// dep(op) are the transfers from which an op can be reached (a transfer has only
// itself). R are the outstanding transfers, and D = dep(c) & R for a computing op c:
//
//   M(r)  = Time(r)
//   P(r)  = sum of Time(c) over c with D = {r}
//   M+(r) = min over c with r in D and |D| > 1 of: sum of Time(x) over x in D
class Outstanding {
 public:
  // All transfers of a valid graph are outstanding. Functions take their index in
  // `transfers_of`.
  Outstanding(const Graph& graph, TimeOracle oracle);

  size_t size() const { return left_; }
  bool has(size_t transfer) const { return is_left_[transfer]; }
  // The transfer has arrived. Requires: it was outstanding.
  void complete(size_t transfer);
  // By transfer. For transfers that are not outstanding only M is valid. Sums are made
  // in the order of the list, so equal sets have equal sums.
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

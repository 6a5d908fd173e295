// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "ordering/properties.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "base/check.h"

namespace aikido::ordering {
namespace {

using Set = std::vector<size_t>;

Set joined(const Set& a, const Set& b) {
  Set both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

}  // namespace

Outstanding::Outstanding(const Graph& graph, TimeOracle oracle) {
  const bool is_measured = oracle == TimeOracle::kMeasured;
  const auto transfers = transfers_of(graph);
  const auto before = neighbours_of(graph).before;
  std::vector<Set> dep(graph.ops.size());
  for (size_t i = 0; i < transfers.size(); ++i) {
    dep[transfers[i]] = {i};
    times_.push_back(is_measured ? graph.ops[transfers[i]].time_s : 1);
  }
  std::map<Set, double> groups;
  for (const size_t op : program_order(graph)) {
    if (graph.ops[op].kind == OpKind::kTransfer) continue;
    for (const size_t needed : before[op]) dep[op] = joined(dep[op], dep[needed]);
    if (!dep[op].empty()) groups[dep[op]] += is_measured ? graph.ops[op].time_s : 0;
  }
  for (auto& [waits_for, time] : groups) groups_.push_back({waits_for, time});
  left_ = transfers.size();
  is_left_.assign(left_, true);
}

void Outstanding::complete(size_t transfer) {
  AIKIDO_CHECK(is_left_.at(transfer), "transfer ", transfer, " is here already");
  is_left_[transfer] = false;
  --left_;
  for (Group& group : groups_) {
    auto& set = group.waits_for;
    const auto at = std::lower_bound(set.begin(), set.end(), transfer);
    if (at != set.end() && *at == transfer) set.erase(at);
  }
}

std::vector<Properties> Outstanding::properties() const {
  std::vector<Properties> of(times_.size());
  for (size_t i = 0; i < times_.size(); ++i)
    of[i] = {times_[i], 0, std::numeric_limits<double>::infinity()};
  for (const Group& group : groups_) {
    const auto& set = group.waits_for;
    if (set.size() == 1) of[set.front()].p += group.time;
    if (set.size() < 2) continue;
    double sum = 0;
    for (const size_t transfer : set) sum += times_[transfer];
    for (const size_t transfer : set)
      of[transfer].m_plus = std::min(of[transfer].m_plus, sum);
  }
  return of;
}

}  // namespace aikido::ordering

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Short names for the parts of view changes. Any thread.

#include <initializer_list>
#include <vector>

#include "membership/view_message.h"

namespace aikido::testing {

inline RankSet set_of(int32_t size, std::initializer_list<int32_t> ranks) {
  RankSet set(size);
  for (const int32_t r : ranks) set.insert(Rank(r));
  return set;
}

inline std::vector<Rank> ranks_of(std::initializer_list<int32_t> ranks) {
  std::vector<Rank> all;
  for (const int32_t r : ranks) all.emplace_back(r);
  return all;
}

// A report: the member knows operations up to `known`, needs no result up to the second
// number, and has received these results beyond it.
inline membership::Report report_of(
    int32_t size, uint64_t known, uint64_t acked,
    std::vector<membership::ReceivedShard> received = {}) {
  membership::Report report;
  report.known = Seq(known);
  report.acked = Seq(acked);
  report.kept = Seq(1);
  report.received = std::move(received);
  report.lost = RankSet(size);
  return report;
}

}  // namespace aikido::testing

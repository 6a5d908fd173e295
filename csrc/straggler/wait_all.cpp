// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/wait_all.h"

#include "base/mutation.h"

namespace aikido::straggler {

void WaitAll::expect(const RankSet& members) {
  if (mutated(Mutation::kStrictShrinks)) expected_ = members;
}

void WaitAll::on_arrival(Rank rank, TimePoint now) {
  if (!arrived_.insert(rank) || rebalance_ == nullptr) return;
  arrivals_[static_cast<size_t>(rank.value)] = now;
  if (arrived_.is_full()) rebalance_->on_operation(arrivals_, owners_);
}

Decision WaitAll::decide(TimePoint /*now*/) const {
  Decision decision;
  decision.num_arrived = arrived_.count();
  decision.world_size = arrived_.world_size();
  if (arrived_.covers(expected_)) {
    decision.verdict = Verdict::kClose;
    decision.reason = Reason::kComplete;
    return decision;
  }
  decision.reason = Reason::kWaitsForAll;
  arrived_.for_each_missing([&](Rank rank) {
    if (decision.rank == kNoRank) decision.rank = rank;
  });
  return decision;
}

std::optional<TimePoint> WaitAll::next_look() const {
  return std::nullopt;
}

std::optional<TimePoint> WaitAll::quorum_time() const {
  return std::nullopt;
}

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Baseline policy: closes when every member has arrived, and skips nobody. Reports the
// arrival times to a Rebalance, if it has one. One thread.

#include <vector>

#include "straggler/policy.h"
#include "straggler/rebalance.h"

namespace aikido::straggler {

class WaitAll final : public Policy {
 public:
  explicit WaitAll(int32_t world_size)
      : expected_(RankSet::full(world_size)), arrived_(world_size) {}
  // `owners`: the owners of the operation's shards. `rebalance` must outlive it.
  WaitAll(int32_t world_size, Rebalance* rebalance, const RankSet& owners)
      : expected_(RankSet::full(world_size)),
        arrived_(world_size),
        rebalance_(rebalance),
        owners_(owners),
        arrivals_(static_cast<size_t>(world_size)) {}

  // Has no effect: the policy still waits for all members.
  void expect(const RankSet& members) override;

  void on_arrival(Rank rank, TimePoint now) override;
  [[nodiscard]] Decision decide(TimePoint now) const override;
  [[nodiscard]] std::optional<TimePoint> next_look() const override;
  [[nodiscard]] const RankSet& arrived() const override { return arrived_; }
  [[nodiscard]] std::optional<TimePoint> quorum_time() const override;

 private:
  RankSet expected_;
  RankSet arrived_;
  Rebalance* rebalance_ = nullptr;
  RankSet owners_;
  std::vector<TimePoint> arrivals_;
};

}  // namespace aikido::straggler

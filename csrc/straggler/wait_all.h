// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The baseline: closes when every member has arrived, and skips nobody. One thread.

#include "straggler/policy.h"

namespace aikido::straggler {

class WaitAll final : public Policy {
 public:
  explicit WaitAll(int32_t world_size)
      : expected_(RankSet::full(world_size)), arrived_(world_size) {}

  // It waits for everybody all the same.
  void expect(const RankSet& members) override;

  void on_arrival(Rank rank, TimePoint now) override;
  [[nodiscard]] Decision decide(TimePoint now) const override;
  [[nodiscard]] std::optional<TimePoint> next_look() const override;
  [[nodiscard]] const RankSet& arrived() const override { return arrived_; }
  [[nodiscard]] std::optional<TimePoint> quorum_time() const override;

 private:
  RankSet expected_;
  RankSet arrived_;
};

}  // namespace aikido::straggler

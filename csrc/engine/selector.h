// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Choice of the algorithm for a call of a group. Pure, except for its settings. These
// must be equal on all ranks, between the same calls; then each choice is equal. If the
// ranks choose differently, the comparison of their calls reports it. Any thread.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "collectives/call.h"
#include "cost/collective_cost.h"

namespace aikido::engine {

class Selector {
 public:
  // `fixed`: algorithm of all calls that support it, regardless of the cost.
  explicit Selector(std::optional<Algorithm> fixed = std::nullopt) : fixed_(fixed) {}

  // Host of each member, as in the plans of two_level. Before this call, and after
  // forget(), calls that need the hosts go direct.
  void set_hosts(std::span<const int32_t> hosts);
  // From now on each call takes the cheapest algorithm by these costs
  // (cost/collective_cost.h), with the hosts of set_hosts(). Before this call, and
  // after forget(), calls go direct. kInvalidArgument with a sentence if the costs are
  // impossible.
  Status set_costs(cost::CollectiveCosts costs);
  // From now on a call of so many bytes that would use kDirect has one owner. For ranks
  // that share memory and cores. forget() undoes it.
  void set_one_owner(uint64_t least_bytes, uint64_t most_bytes);
  void forget();

  // kDirect for all calls except strict all_reduces.
  Algorithm choose(const collectives::Call& call, int32_t members) const;

 private:
  Algorithm cheapest(const collectives::Call& call, int32_t members) const;

  const std::optional<Algorithm> fixed_;
  std::atomic<uint64_t> least_for_one_ = 1, most_for_one_ = 0;  // no size
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<cost::CollectiveCosts> costs_;
  std::vector<int> hosts_;  // number of members on each host
};

}  // namespace aikido::engine

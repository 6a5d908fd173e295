// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Which algorithm a call of a group takes. Pure but for what it is told, which must be
// the same on all ranks, between the same calls: then so is each choice. Where it was
// not, the ranks are told so by the calls themselves. Any thread.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "collectives/call.h"
#include "ordering/collective_cost.h"

namespace aikido::engine {

class Selector {
 public:
  // `fixed`: what all calls take that can, whatever it costs.
  explicit Selector(std::optional<Algorithm> fixed = std::nullopt) : fixed_(fixed) {}

  // The host of each member, as the plans of two_level have it. Before, and after
  // forget(), what would go by it goes direct.
  void set_hosts(std::span<const int32_t> hosts);
  // Calls take what takes least by these costs (ordering/collective_cost.h), whose
  // hosts are those of set_hosts(), from now on. Before, and after forget(), they go
  // direct. kInvalidArgument with a sentence for costs that make no sense.
  Status set_costs(ordering::CollectiveCosts costs);
  // What would go by kDirect, and has so many bytes, has one owner from now on: for
  // ranks that share memory and cores. Not after forget().
  void set_one_owner(uint64_t least_bytes, uint64_t most_bytes);
  void forget();

  // kDirect for all calls but strict all_reduces.
  Algorithm choose(const collectives::Call& call, int32_t members) const;

 private:
  Algorithm cheapest(const collectives::Call& call, int32_t members) const;

  const std::optional<Algorithm> fixed_;
  std::atomic<uint64_t> least_for_one_ = 1, most_for_one_ = 0;  // none
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<ordering::CollectiveCosts> costs_;
  std::vector<int> hosts_;  // members on each
};

}  // namespace aikido::engine

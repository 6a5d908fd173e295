// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Which algorithm a call of a group takes. Pure but for what it is told, which must be
// the same on all ranks, between the same calls: then so is each choice. Where it was
// not, the ranks are told so by the calls themselves. Any thread.

#include <mutex>
#include <optional>

#include "collectives/call.h"
#include "ordering/collective_cost.h"

namespace aikido::engine {

class Selector {
 public:
  // `fixed`: what all calls take that can, whatever it costs.
  explicit Selector(std::optional<Algorithm> fixed = std::nullopt) : fixed_(fixed) {}

  // Calls take what takes least by these costs (ordering/collective_cost.h), from now
  // on. Before, and after forget_costs(), they go direct. kInvalidArgument with a
  // sentence for costs that make no sense.
  Status set_costs(const ordering::CollectiveCosts& costs);
  void forget_costs();

  // kDirect for all calls but strict all_reduces.
  Algorithm choose(const collectives::Call& call, int32_t members) const;

 private:
  const std::optional<Algorithm> fixed_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<ordering::CollectiveCosts> costs_;
};

}  // namespace aikido::engine

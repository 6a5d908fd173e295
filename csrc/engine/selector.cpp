// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/selector.h"

#include "base/check.h"

namespace aikido::engine {

using ordering::choose_collective;
using ordering::kAlgorithms;

Status Selector::set_costs(const ordering::CollectiveCosts& costs) {
  AIKIDO_TRY(choose_collective(2, 1, costs, kAlgorithms).status());
  const std::lock_guard lock(mutex_);
  costs_ = costs;
  return Status::ok();
}

void Selector::forget_costs() {
  const std::lock_guard lock(mutex_);
  costs_.reset();
}

Algorithm Selector::choose(const collectives::Call& call, int32_t members) const {
  if (call.kind != collectives::CallKind::kAllreduce || call.is_partial())
    return Algorithm::kDirect;
  if (fixed_) return *fixed_;
  const std::lock_guard lock(mutex_);
  if (!costs_) return Algorithm::kDirect;
  const auto bytes = static_cast<double>(call.bytes());
  auto choice = choose_collective(members, bytes, *costs_, kAlgorithms);
  AIKIDO_CHECK(choice.is_ok(), choice.status().message());
  return choice->algorithm;
}

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/selector.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace aikido::engine {

using cost::choose_collective;
using cost::kAlgorithms;

void Selector::set_hosts(std::span<const int32_t> hosts) {
  std::map<int32_t, int> members_on;
  for (const int32_t host : hosts) ++members_on[host];
  const std::lock_guard lock(mutex_);
  hosts_.clear();
  for (const auto& [host, count] : members_on) hosts_.push_back(count);
  if (costs_) costs_->hosts = hosts_;
}

Status Selector::set_costs(cost::CollectiveCosts costs) {
  const std::lock_guard lock(mutex_);
  costs.hosts = hosts_;
  const int members = std::accumulate(hosts_.begin(), hosts_.end(), 0);
  AIKIDO_TRY(choose_collective(std::max(members, 1), 1, costs, kAlgorithms).status());
  costs_ = std::move(costs);
  return Status::ok();
}

// The order matters: between the first and the last write the range is empty.
void Selector::set_one_owner(uint64_t least_bytes, uint64_t most_bytes) {
  most_for_one_ = 0;
  least_for_one_ = least_bytes;
  most_for_one_ = most_bytes;
}

void Selector::forget() {
  set_one_owner(1, 0);
  const std::lock_guard lock(mutex_);
  costs_.reset();
  hosts_.clear();
}

Algorithm Selector::choose(const collectives::Call& call, int32_t members) const {
  if (call.kind != collectives::CallKind::kAllreduce) return Algorithm::kDirect;
  const Algorithm chosen = call.is_partial() || call.is_weighted
                               ? Algorithm::kDirect
                               : cheapest(call, members);
  if (chosen != Algorithm::kDirect) return chosen;
  const bool has_one_owner =
      call.bytes() >= least_for_one_ && call.bytes() <= most_for_one_;
  return has_one_owner ? Algorithm::kOneOwner : Algorithm::kDirect;
}

Algorithm Selector::cheapest(const collectives::Call& call, int32_t members) const {
  if (fixed_ && *fixed_ != Algorithm::kTwoLevel) return *fixed_;
  const std::lock_guard lock(mutex_);
  if (fixed_) return hosts_.empty() ? Algorithm::kDirect : *fixed_;
  if (!costs_) return Algorithm::kDirect;
  const auto bytes = static_cast<double>(call.bytes());
  // With one level, or without known hosts, two_level equals a ring, which is listed
  // first.
  auto choice = choose_collective(members, bytes, *costs_, kAlgorithms);
  AIKIDO_CHECK(choice.is_ok(), choice.status().message());
  return choice->algorithm;
}

}  // namespace aikido::engine

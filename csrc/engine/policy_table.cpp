// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/policy_table.h"

#include <algorithm>

#include "base/mutation.h"

namespace aikido::engine {

PolicyTable::PolicyTable(int32_t size, uint64_t log_bytes)
    : log_(std::make_shared<straggler::ResultLog>(size, log_bytes)) {}

straggler::GroupPolicy* PolicyTable::find(
    const straggler::PolicyOptions& options) const {
  for (const auto& policy : policies_)
    if (policy->options() == options) return policy.get();
  return nullptr;
}

straggler::GroupPolicy& PolicyTable::add(const straggler::PolicyOptions& options) {
  const auto log = mutated(Mutation::kLogPerPolicy)
                       ? std::make_shared<straggler::ResultLog>(*log_)
                       : log_;
  policies_.push_back(std::make_unique<straggler::GroupPolicy>(options, log));
  return *policies_.back();
}

void PolicyTable::on_called(Rank rank, Seq seq, TimePoint now) {
  for (const auto& policy : policies_) policy->history().on_called(rank, seq, now);
}

void PolicyTable::set_members(const RankSet& members) {
  for (const auto& policy : policies_) policy->history().set_members(members);
}

void PolicyTable::on_moved(Rank rank, bool owns, Seq seq) {
  for (const auto& policy : policies_) policy->on_moved(rank, owns, seq);
}

void PolicyTable::forget_skips(Rank rank) {
  for (const auto& policy : policies_) policy->history().forget_skips(rank);
}

uint32_t PolicyTable::consecutive_skips(Rank rank) const {
  uint32_t most = 0;
  for (const auto& policy : policies_)
    most = std::max(most, policy->history().consecutive_skips(rank));
  return most;
}

bool PolicyTable::may_leave() const {
  return std::any_of(begin(), end(), [](const auto& policy) {
    return policy->options().log_full == straggler::LogFull::kLeave;
  });
}

bool PolicyTable::has_full_sums() const {
  return std::any_of(begin(), end(),
                     [](const auto& policy) { return policy->options().rebalance; });
}

bool PolicyTable::would_suffice(const RankSet& members) const {
  return std::all_of(begin(), end(), [&](const auto& policy) {
    return straggler::most_contributions(policy->options(), members) >=
           straggler::quorum_of(policy->options(), log_->world_size());
  });
}

straggler::ReplayedOperations PolicyTable::replayed() const {
  straggler::ReplayedOperations sums;
  for (const auto& policy : policies_) sums.add(policy->replayed());
  return sums;
}

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Straggler policies of a group, by their options. A policy is added with the first
// call that has its options, here or on another member. Progress thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/types.h"
#include "straggler/group_policy.h"

namespace aikido::engine {

class PolicyTable {
 public:
  // `log_bytes` limits the results that are kept for late members. All policies share
  // this log, so that the memory for late callers is bounded.
  PolicyTable(int32_t size, uint64_t log_bytes);

  bool is_empty() const { return policies_.empty(); }
  size_t size() const { return policies_.size(); }
  // In the order in which they were added.
  auto begin() const { return policies_.begin(); }
  auto end() const { return policies_.end(); }
  // Null: there is none with these options.
  straggler::GroupPolicy* find(const straggler::PolicyOptions& options) const;
  // Requires: find(options) is null.
  straggler::GroupPolicy& add(const straggler::PolicyOptions& options);

  // ---- events, for the histories of all policies
  void on_called(Rank rank, Seq seq, TimePoint now);
  void set_members(const RankSet& members);
  void on_moved(Rank rank, bool owns, Seq seq);
  void forget_skips(Rank rank);

  // ---- properties of at least one policy, unless a comment says otherwise
  // Largest number of operations in a row that went on without `rank`.
  uint32_t consecutive_skips(Rank rank) const;
  // A late member copies a state instead of being waited for.
  bool may_leave() const;
  // Full sums need all members of the view: WaitAll(rebalance=True).
  bool has_full_sums() const;
  // Contributions of `members` alone suffice for the next operation of each policy.
  bool would_suffice(const RankSet& members) const;
  // Sums over all policies.
  straggler::ReplayedOperations replayed() const;

 private:
  std::shared_ptr<straggler::ResultLog> log_;
  std::vector<std::unique_ptr<straggler::GroupPolicy>> policies_;
};

}  // namespace aikido::engine

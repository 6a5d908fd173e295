// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Entry point of this folder, one object per process group and view. It holds the
// options, the history of the members, and creates a policy for each shard owned here.
// Only the progress thread calls it.
//
// Note [how lateness is decided]
// Each shard has one owner, and only the owner decides. The owner's clock starts at
// t_q, when the K-th contribution has arrived. So a delay of all members skips nobody.
// The lag of a member is its arrival time minus t_q. From the last 64 operations the
// owner chooses the rule that would have made most progress: one deadline for all
// members, and members that get no time (deadline.h, wait_model.h). The shard closes
// when the deadline of the last missing member has passed.
//   A member is known to be behind if it was skipped in an operation that it has not
// called yet. It gets no time. So one late step costs the others one deadline, not one
// deadline per bucket. Two limits stand above all deadlines and make the group wait:
// skips of one member in a row, and bytes of results kept for it. The first operations
// of a size class wait up to the ceiling, because nothing is known yet. Decisions
// depend on events and their times alone, so the same input gives the same answers.
//
// Use by an owner:
//   - call of an operation: policy = group.start(seq, bytes), for each owned shard
//   - complete contribution: policy->on_arrival(rank, now); decide(now)
//   - nothing happens: decide(now) at next_look()
//   - decide() says close: mask = policy->arrived(); on_close(); drop the policy
// Use by every member:
//   - final result: group.history().on_committed(seq, mask, bytes)
//   - contribution after the close: group.history().on_late_arrival(seq, rank, now)
//   - call of a member: group.history().on_called(rank, seq, now)
//
// With WaitAll(rebalance=True) nobody is skipped. The history then says which member
// should own nothing (rebalance.h).

#include <memory>

#include "straggler/active_backup.h"
#include "straggler/deadline.h"
#include "straggler/history.h"
#include "straggler/owner_watch.h"
#include "straggler/policy.h"
#include "straggler/rebalance.h"

namespace aikido::straggler {

class GroupPolicy {
 public:
  // `log`: shared by all policies of the group. Requires: validate(options,
  // log->world_size()) is ok.
  GroupPolicy(const PolicyOptions& options, std::shared_ptr<ResultLog> log);
  GroupPolicy(const GroupPolicy&) = delete;
  GroupPolicy& operator=(const GroupPolicy&) = delete;

  // Policy of one shard of operation `seq`, which has `bytes` bytes in all. The group
  // must outlive it.
  std::unique_ptr<Policy> start(Seq seq, uint64_t bytes);
  // The same, and records which members are late for a full sum. `owners`: the owners
  // of the operation's shards.
  std::unique_ptr<Policy> start(Seq seq, uint64_t bytes, const RankSet& owners);
  // Policy of a shard that has moved here. Members in `had_time` already had their time
  // in another shard of `seq` and get no more.
  std::unique_ptr<Policy> start_again(Seq seq, uint64_t bytes, const RankSet& had_time);

  // The same for options.has_stand_ins(). The shard closes with at most `max_stand_ins`
  // stand-ins.
  std::unique_ptr<ActiveBackup> start_with_backups(Seq seq, uint64_t bytes,
                                                   const RankSet& had_time,
                                                   size_t max_stand_ins);

  // Note [ceiling below the time-out]
  // A late member must be skipped before the call fails, but the default ceiling
  // exceeds a short time-out. Rule: a ceiling that is not below the time-out of the
  // calls becomes half of that time-out. Each owner uses its own time-out. That is safe
  // because the owner alone decides a mask, and the options that all members compare
  // are unchanged.
  //
  // Sets the time-out of the local member's calls with these options.
  void on_timeout(Duration timeout);
  // Longest deadline.
  Duration ceiling() const { return ceiling_; }

  // Longest wait of an owner for `rank` in an operation of `bytes` bytes.
  Duration deadline_of(Rank rank, Seq seq, uint64_t bytes) const {
    return deadlines_.of(rank, seq, bytes).deadline;
  }
  // Shortest such wait, for any knowledge that another owner may have.
  Duration grace(uint64_t bytes) const { return deadlines_.grace(bytes); }
  // Longest wait for a contribution that was requested from a backup.
  Duration stand_in_patience(uint64_t bytes) const {
    return options_.has_stand_ins() ? times_.patience(bytes, Duration::zero())
                                    : Duration::zero();
  }
  // Longest time that the result of one owner may be missing after all other results
  // have arrived (owner_watch.h).
  OwnerWatch& owner_watch() { return owner_watch_; }

  // Operations whose shards were closed here by skipping, and the same under WaitAll.
  const ReplayedOperations& replayed() const { return deadlines_.replayed(); }

  // True if `rank` delays the others again and again: it should own nothing.
  bool is_slow(Rank rank) const {
    return options_.rebalance && rebalance_.is_slow(rank);
  }
  // Operations in a row with the contribution of `rank`. With rebalance, where each
  // result has all contributions: operations in a row in which `rank` was in time.
  uint32_t healthy_run(Rank rank) const {
    return options_.rebalance ? rebalance_.in_time_run(rank)
                              : history_.healthy_run(rank);
  }
  // `rank` owns shards again, or owns nothing any more, after operation `now`.
  void on_moved(Rank rank, bool owns, Seq now) {
    if (owns) {
      history_.forgive(rank, now);
    } else {
      rebalance_.on_moved(rank);
    }
  }

  const PolicyOptions& options() const { return options_; }
  History& history() { return history_; }
  const History& history() const { return history_; }

 private:
  PolicyOptions options_;
  Duration ceiling_;
  History history_;
  Deadlines deadlines_;
  StandInTimes times_;
  OwnerWatch owner_watch_;
  Rebalance rebalance_;
};

}  // namespace aikido::straggler

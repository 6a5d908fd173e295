// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The door of this part, one object per process group and view: the options, what is
// known of the members, and a policy for each shard owned here. Only the progress
// thread calls it.
//
// Note [how lateness is decided]
// Each shard has one owner, and only the owner decides. Its clock starts at t_q, when
// the K-th contribution is here, so what slows down everyone skips nobody. A member's
// lag is its arrival after t_q. From the last 64 operations the rule is chosen that
// would have made most progress: one deadline for all, and members that get no time
// (deadline.h, wait_model.h). The shard closes when the deadline of the last missing
// member is over. A member known to be behind, skipped in an operation that it has not
// called yet, gets no time: one late step costs the others one deadline and not one per
// bucket. Two bounds stand above all deadlines and make the group wait: skips in a row
// of one member, and bytes of results kept for it. The first operations of a size class
// wait up to the ceiling while nothing is known. Decisions depend on events and their
// times alone: the same input gives the same answers.
//
// How an owner uses it:
//   call of an operation    policy = group.start(seq, bytes)           per owned shard
//   a contribution is whole policy->on_arrival(rank, now); decide(now)
//   nothing happens         decide(now) at next_look()
//   decide() says close     mask = policy->arrived(); on_close(); drop the policy
// and every member, for what it learns on the way:
//   a result is final       group.history().on_committed(seq, mask, bytes)
//   it came after the close group.history().on_late_arrival(seq, rank, now)
//   a member has called     group.history().on_called(rank, seq, now)
//
// With WaitAll(rebalance=True) nobody is skipped, and what is known of the members says
// who should own nothing (rebalance.h).

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
  // `log`: one of all policies of the group. Requires: validate(options,
  // log->world_size()) is ok.
  GroupPolicy(const PolicyOptions& options, std::shared_ptr<ResultLog> log);
  GroupPolicy(const GroupPolicy&) = delete;
  GroupPolicy& operator=(const GroupPolicy&) = delete;

  // The policy of one shard of operation `seq`, which has `bytes` in all. It must not
  // outlive the group.
  std::unique_ptr<Policy> start(Seq seq, uint64_t bytes);
  // The same, and notes who is late for a full sum. `owners`: of the operation's
  // shards.
  std::unique_ptr<Policy> start(Seq seq, uint64_t bytes, const RankSet& owners);
  // Of a shard that has changed hands: what was there already has no time, and those
  // who `had_time` in another shard of `seq` get none.
  std::unique_ptr<Policy> start_again(Seq seq, uint64_t bytes, const RankSet& had_time);

  // The same for options.has_stand_ins(); a shard is closed with at most
  // `max_stand_ins`.
  std::unique_ptr<ActiveBackup> start_with_backups(Seq seq, uint64_t bytes,
                                                   const RankSet& had_time,
                                                   size_t max_stand_ins);

  // Note [a ceiling that no call lives to see]
  // A late member must be skipped before the call fails, but the default ceiling fits
  // no short time-out. So where the ceiling is not below the time-out of the calls, it
  // is half of that. Each owner goes by its own time-out: masks are its decision alone,
  // and the options, which all compare, stay as they are.
  //
  // The local member's calls with these options end after `timeout`.
  void on_timeout(Duration timeout);
  // The longest deadline.
  Duration ceiling() const { return ceiling_; }

  // For how long an owner may wait for `rank` in an operation of `bytes`.
  Duration deadline_of(Rank rank, Seq seq, uint64_t bytes) const {
    return deadlines_.of(rank, seq, bytes).deadline;
  }
  // And at least, of what another owner may know otherwise.
  Duration grace(uint64_t bytes) const { return deadlines_.grace(bytes); }
  // And for a contribution of a backup that it has asked for.
  Duration stand_in_patience(uint64_t bytes) const {
    return options_.has_stand_ins() ? times_.patience(bytes, Duration::zero())
                                    : Duration::zero();
  }
  // For how long the result of one owner may be missing when those of all others are
  // here (owner_watch.h).
  OwnerWatch& owner_watch() { return owner_watch_; }

  // Operations whose shards were closed here by skipping, and the same under WaitAll.
  const ReplayedOperations& replayed() const { return deadlines_.replayed(); }

  // `rank` holds up the others again and again: it should own nothing.
  bool is_slow(Rank rank) const {
    return options_.rebalance && rebalance_.is_slow(rank);
  }
  // Operations in a row that `rank` was in, or in time for if all are in all of them.
  uint32_t healthy_run(Rank rank) const {
    return options_.rebalance ? rebalance_.in_time_run(rank)
                              : history_.healthy_run(rank);
  }
  // It owns shards again, or nothing any more, after operation `now`.
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

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Owners of shards in a group: when shards leave a late member, and when they come
// back. straggler/ownership.h decides this from the observations of each member. The
// view change carries it out. Progress thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/types.h"
#include "engine/member_events.h"
#include "engine/peers.h"
#include "engine/policy_table.h"
#include "membership/view_change.h"
#include "straggler/ownership.h"

namespace aikido::engine {

class ShardOwners {
 public:
  // Parts of the group, which outlive this object.
  struct Parts {
    const Clock* clock;
    Peers* peers;
    PolicyTable* policies;
    membership::ViewChange* view_change;
    MemberEvents* events;
  };
  // `self` is one of `size` ranks.
  ShardOwners(Rank self, int32_t size, const Parts& parts);

  // The local member makes a skippable call.
  void on_call(size_t bytes);
  // The result of a skippable call is complete here. `is_full`: it has all
  // contributions by WaitAll(rebalance=True).
  void on_result(bool is_full);
  // Advice about `rank` from outside, until the next advice.
  void advise(Rank rank, straggler::Advice advice);
  // A change is to be considered as soon as possible.
  bool is_due() const { return is_due_; }
  // Makes the changes that are due. Not in the middle of other work, because a change
  // begins with a report of all operations.
  void change_if_due();
  // At the beginning of a call: the same, and considers the full sums that have ended.
  void change_before_call();
  // `view` takes effect.
  void on_view(const membership::View& view);

  // `rank` delays the others with its shards. Returns false if it keeps them, because
  // half of the members would own nothing. Then either everything is slow, or several
  // members were slow in turn. Suspected members own shards until the next view, and
  // none from then on.
  bool suspect(Rank rank);
  // Gives shards back before a trial is due, to relieve `late`. Only members that have
  // called the awaited operation get some. The view for it excludes members that do
  // not answer.
  void restore_for(Rank late);

 private:
  const membership::View& view() const { return parts_.view_change->view(); }
  straggler::Suits suits(Rank rank) const;
  straggler::Ownership::Seen seen(Rank rank) const;
  std::vector<straggler::Ownership::Change> changes() const;

  const Rank self_;
  const Parts parts_;
  straggler::Ownership ownership_;
  bool is_due_ = false;            // changes() is not empty
  bool is_full_sum_over_ = false;  // a full sum has ended since the last call
};

}  // namespace aikido::engine

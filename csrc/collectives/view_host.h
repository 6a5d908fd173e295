// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Interface of an operation that can end without a member to the group around it: its
// policies, the view and its changes, and the observations of members. Progress thread.

#include <cstddef>
#include <cstdint>

#include "collectives/operation_host.h"
#include "membership/view.h"
#include "straggler/group_policy.h"

namespace aikido::collectives {

class ViewHost : public OperationHost {
 public:
  // Policy and history of all operations with these options.
  virtual straggler::GroupPolicy& policy(const straggler::PolicyOptions& options) = 0;
  // Participants of operations that may skip, and owners. The reference stays valid.
  virtual const membership::View& view() const = 0;
  // The view is about to change: no result is accepted and no contribution sent.
  virtual bool is_promised() const = 0;
  // True if nothing will arrive from `rank`: it has left, or is lost.
  virtual bool has_gone(Rank rank) const = 0;
  // The last operation up to which `rank` needs no result, as far as known: it has the
  // results, or its calls have failed, or it goes on without them.
  virtual uint64_t acked_by(Rank rank) const = 0;
  // `rank` delays the others with its part of an operation. Returns false if nothing is
  // done, because half of the members would own nothing.
  virtual bool suspect(Rank rank) = 0;
  // Members that own nothing since they were late once own shards again, to relieve
  // `late`. No member knows if `late` itself is slow.
  virtual void restore_owners(Rank late) = 0;
  // As cancel() for a message whose rest is sent again from other memory.
  virtual size_t recall(Rank to, transport::MessageId id) = 0;
  // This owner closed a shard with `here` of the `total` bytes of `rank`'s
  // contribution.
  virtual void note_share(Rank rank, size_t here, size_t total) = 0;
  // This backup sends `bytes` bytes as its contribution.
  virtual void note_given(size_t bytes) = 0;
  // The result of a shard has arrived, and contains the contribution of a backup.
  virtual void note_stand_in(const straggler::StandIn& stand_in) = 0;
};

}  // namespace aikido::collectives

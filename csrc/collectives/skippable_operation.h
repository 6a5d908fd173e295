// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Base class of calls that can end without a member. Beside the contract of Operation,
// such a call follows the views of the group (membership/view_change.h): it may close
// before the local member calls it, it reports its results in a view change, and it
// keeps them until all members have them. Progress thread.

#include <memory>
#include <utility>
#include <vector>

#include "collectives/operation.h"
#include "collectives/view_host.h"
#include "membership/view_message.h"

namespace aikido::collectives {

class SkippableOperation : public Operation {
 public:
  SkippableOperation(ViewHost* host, Seq seq, Call call, Rank first_caller)
      : Operation(host, seq, std::move(call), first_caller, this), view_host_(host) {}

  // The result lacks some of this member's data. Known once the operation is over.
  virtual bool was_skipped() const = 0;
  // With backups: data shards whose primaries are missing in the result, as holes_of().
  // Known once the operation is over and its caller has the result.
  virtual std::vector<Hole> holes() const { return {}; }
  // The result is complete here although the caller has not called yet.
  virtual bool is_committed() const = 0;
  // Nothing of another member is missing, independent of the local caller.
  virtual bool has_all() const { return is_committed(); }
  // The local result is not the result of any other member.
  virtual bool is_own() const { return false; }
  // Every shard has a result, here or on a member that will send it.
  virtual bool is_decided() const { return is_committed(); }
  // A shard owned here is open, or some shard is closed without a member. So no other
  // owner can have all results unless another member has received that owner's shard.
  virtual bool is_withheld() const { return false; }
  // Largest number of contributions of these members to a result, as far as known here.
  virtual int32_t most_contributions(const RankSet& members) const = 0;
  // Later contributions of others are not kept.
  virtual bool is_closed() const { return false; }

  // `rank` decides about contributions to this operation.
  virtual bool is_owner(Rank) const { return true; }
  // The operation is over for the local caller, but still sends data to others. It
  // still gets on_promise(), on_view() and the results of others.
  virtual bool is_sending() const { return false; }

  // The view is about to change (on_promise), or has changed (on_view).
  virtual void on_promise() {}
  virtual void on_view() = 0;
  // `rank` has called this operation or a later one.
  virtual void on_called(Rank) {}
  // The local member has copied a state that contains this operation, and will not call
  // it. The result is dropped, but the operation still sends and sums for the others.
  // Requires: not started.
  virtual void skip_through() {}
  // Drops the received results. Requires: not started, and this member is excluded.
  virtual void start_over() {}
  // `rank` needs no result of this operation any more, and will not contribute.
  virtual void on_acked(Rank) {}
  // A frame without payload: kAck, kAskPresent, kPresent.
  virtual void on_notice(Rank, const transport::FrameHeader&) {}
  // Adds the received results to `received`, in the order of shards, for a report.
  virtual void report(std::vector<membership::ReceivedShard>&) const {}
  // The same for shards that are closed here, if their results are not received.
  virtual void report_closed(std::vector<membership::ReceivedShard>&) const {}
  // Numbers of the shards of which it has parts; ascending.
  virtual std::vector<int32_t> divided() const { return {}; }

 protected:
  ViewHost* const view_host_;  // the host of Operation

 private:
  friend class SkippablePart;  // skippable/skippable_part.h
};

// The same reference, with the type of the object. Requires: operation->skippable().
inline std::shared_ptr<SkippableOperation> shared_skippable(
    const std::shared_ptr<Operation>& operation) {
  return {operation, operation->skippable()};
}

}  // namespace aikido::collectives

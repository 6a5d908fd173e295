// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Allreduce that can end without a late member (our design; the idea of skipping is
// AIKIDO's). Bytes flow as in DirectReduction, but the owner of a shard closes it when
// its policy says so. The owner folds the complete contributions, and sends result and
// mask to all members, late or not. So all members expose the same result, or none.
//
// The operation lives on every member from the first frame on, called or not: a member
// with a late caller still owns its shard, and keeps the results for its caller. It
// lives on after its end until all members have the results, because a view change
// (membership/view_change.h) may make any holder the sender of a result.
//
// Note [a full sum goes out as it is folded]
// A piece of the result is sent as soon as all members' bytes for it have arrived, so
// uploads and downloads overlap. With WaitAll(rebalance=True) the mask is always full,
// and pieces are small while some member owns nothing and is the last. In other calls
// the last piece waits for the close, so no member has a whole result before. If the
// owner skips a member, it sends the whole result again, and receivers replace what
// they have.
//
// Note [one mask for the bucket]
// With granularity="bucket" an operation is one shard, and the owners of a cut take
// turns. A view handles it like any shard: it has the number of its owner in the cut.
//
// Note [closed vs. received]
// A member has received a shard's result when all its bytes have arrived. A received
// result is reported in a view change, and stays. A result that a member has closed as
// the owner counts as received if one of these holds:
//   - every shard is full, and these bytes have left for at least half of the others;
//   - one other member has acknowledged it;
//   - no other member needs it. If the call has failed on all others, none will.
// So a slow owner can give up a result that no other member has received, and the
// others need no bytes from behind its link.
//
// Note [the input stays until the result is whole]
// The result of a shard is written beside the caller's memory, and is copied there when
// it is complete. Until then the input can be sent again, to another owner.

#include <memory>
#include <vector>

#include "collectives/skippable/called_members.h"
#include "collectives/skippable/contributions.h"
#include "collectives/skippable/incoming_frames.h"
#include "collectives/skippable/partial_backup.h"
#include "collectives/skippable/partial_owner.h"
#include "collectives/skippable/partial_shards.h"
#include "collectives/skippable/partial_suspicion.h"
#include "collectives/skippable/received_results.h"
#include "collectives/skippable/result_sends.h"
#include "collectives/skippable_operation.h"

namespace aikido::collectives {

// Connects the parts of the operation and passes its events to them. Each part has its
// own header; a part calls the parts above it in the list of members.
class PartialAllreduce final : public SkippableOperation {
 public:
  PartialAllreduce(ViewHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> rest) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  bool is_committed() const override { return shards_.num_left() == 0 || is_skipped_; }
  bool is_decided() const override;
  bool is_withheld() const override;
  int32_t most_contributions(const RankSet& members) const override {
    return straggler::most_contributions(call_.policy, members, backups_.said());
  }
  bool is_closed() const override;
  bool is_owner(Rank rank) const override;
  bool was_skipped() const override;
  std::vector<Hole> holes() const override;
  void on_promise() override;
  void on_view() override;
  void on_called(Rank rank) override;
  void skip_through() override;
  void start_over() override;
  void on_acked(Rank rank) override;
  void on_notice(Rank from, const transport::FrameHeader& header) override;
  void report(std::vector<membership::ReceivedShard>& received) const override;
  void report_closed(std::vector<membership::ReceivedShard>& closed) const override;
  std::vector<int32_t> divided() const override { return shards_.divided(); }
  void on_time(TimePoint now) override;
  std::optional<TimePoint> next_look() const override;
  std::vector<Rank> missing() const override;
  std::vector<Rank> awaited() const override;

 private:
  Status on_start() override;
  void on_message_sent(uint32_t token) override;
  bool is_callers(transport::FrameKind kind) const override {
    return kind == transport::FrameKind::kContrib;
  }
  size_t chunk_of(transport::FrameKind kind) const override {
    return kind == transport::FrameKind::kContrib ? contributions_.frame_bytes() : 0;
  }
  size_t num_receivers(transport::FrameKind kind) const override {
    return kind == transport::FrameKind::kResult ? results_.num_receivers() : 1;
  }
  uint32_t edition() const override { return results_.edition(); }
  void cut();
  void on_removed();
  void divide();
  void let_go_all();
  void renew(int32_t s);
  void contribute_all();
  void contribute(int32_t s);
  void expose_if_done();
  Outcome make_outcome() const;

  straggler::GroupPolicy& group_policy_;
  PartialShards shards_;
  IncomingFrames incoming_;
  ResultSends results_;
  Contributions contributions_;
  CalledMembers called_;
  BackupOffers backups_;
  OwnerSuspicion suspicion_;
  ReceivedResults received_;
  ShardOwner owner_;
  bool was_committed_ = false;  // before the local call
  bool is_skipped_ = false;     // Note [skipped through]
  bool was_anew_ = false;       // a view has cut the operation anew
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Owner's side of a skippable allreduce: it collects and folds the contributions to the
// shards of this member, closes these shards when their policies say so, and sends
// their results. Progress thread.
//
// States of a shard (`PartialShard::own` is null in the states foreign and received):
//   - foreign --take_over()--> open
//   - open --policy closes, majority is present--> closed
//   - open or closed --view names another owner--> foreign
//   - closed --new view is promised--> open, with a given-up result
//   - closed --received_results.h--> received

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collectives/skippable/called_members.h"
#include "collectives/skippable/contributions.h"
#include "collectives/skippable/incoming_frames.h"
#include "collectives/skippable/partial_backup.h"
#include "collectives/skippable/partial_shards.h"
#include "collectives/skippable/partial_suspicion.h"
#include "collectives/skippable/received_results.h"
#include "collectives/skippable/result_sends.h"
#include "collectives/skippable/skippable_part.h"
#include "kernels/reduce.h"

namespace aikido::collectives {

class ShardOwner final : public SkippablePart {
 public:
  // The other parts of the operation, which must outlive the owner's side.
  struct Others {
    straggler::GroupPolicy& policy;
    PartialShards& shards;
    IncomingFrames& incoming;
    ResultSends& sends;
    Contributions& contributions;
    CalledMembers& called;
    OwnerSuspicion& suspicion;
    BackupOffers& backups;
    ReceivedResults& received;
  };
  ShardOwner(SkippableOperation& operation, const Others& others);

  // This member becomes the owner of the shard, with the contributions that have
  // arrived.
  void take_over(int32_t s);
  // The local caller's contribution to a shard of this member is available.
  void add_own_input(int32_t s);
  // As Operation::place() and arrived(), for a contribution to shard `s`.
  Result<std::byte*> place(Rank from, const transport::FrameHeader& header, int32_t s,
                           std::span<const std::byte> rest);
  void arrived(Rank from, const transport::FrameHeader& header);
  // `from` has answered that it knows the operation.
  void on_present(int32_t s, Rank from);
  // `rank` has called the operation or a later one.
  void on_called(Rank rank);
  // Some member will not contribute any more.
  void expect_fewer(int32_t s);
  // Closes the shard, if this member owns it and its policy says so.
  void close_if_due(int32_t s);
  // Time of the next close_if_due() or late result. nullopt: only an event can change
  // the answer.
  std::optional<TimePoint> next_look() const;

 private:
  // Input of a fold, with the own weight in a weighted call.
  Counted counted(const RankSet& mask,
                  std::span<const straggler::StandIn> stand_ins = {}) const {
    return {mask, stand_ins, call_.is_weighted ? &local_.weight : nullptr};
  }
  RankSet expected() const;
  void start_policy(int32_t s);
  void fold_ahead(int32_t s);
  void send_ahead(int32_t s);
  bool is_heard(int32_t s);
  void close(int32_t s, const straggler::Decision& decision);
  size_t piece_bytes() const;

  straggler::GroupPolicy& group_policy_;
  PartialShards& shards_;
  IncomingFrames& incoming_;
  ResultSends& results_;
  Contributions& contributions_;
  CalledMembers& called_;
  OwnerSuspicion& suspicion_;
  BackupOffers& backups_;
  ReceivedResults& received_;
  const kernels::ReduceFn reduce_;
};

}  // namespace aikido::collectives

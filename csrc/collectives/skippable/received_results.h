// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Results of a skippable allreduce on their way to the local caller: they arrive from
// their owners, or were closed here, and are received when they cannot change any more
// (Note [closed vs. received] in partial_allreduce.h). Progress thread.

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/skippable/contributions.h"
#include "collectives/skippable/incoming_frames.h"
#include "collectives/skippable/partial_shards.h"
#include "collectives/skippable/partial_suspicion.h"
#include "collectives/skippable/result_sends.h"
#include "collectives/skippable/skippable_part.h"
#include "straggler/group_policy.h"

namespace aikido::collectives {

// True for a question, and for a result header whose data comes later. Such a frame has
// no payload, and may arrive in the middle of another message of the same sender.
inline bool is_bare(const transport::FrameHeader& header) {
  return header.kind == transport::FrameKind::kReady ||
         (header.payload_bytes == 0 && header.total_bytes > 0);
}

class ReceivedResults final : public SkippablePart {
 public:
  // The policy and the other parts must outlive this object.
  ReceivedResults(SkippableOperation& operation, straggler::GroupPolicy& policy,
                  PartialShards& shards, IncomingFrames& incoming, ResultSends& sends,
                  Contributions& contributions, OwnerSuspicion& suspicion)
      : SkippablePart(operation),
        group_policy_(policy),
        shards_(shards),
        incoming_(incoming),
        sends_(sends),
        contributions_(contributions),
        suspicion_(suspicion) {}

  // As Operation::place() and arrived(), for the result of shard `s`.
  Result<std::byte*> place(Rank from, const transport::FrameHeader& header, int32_t s,
                           std::span<const std::byte> rest);
  void arrived(int32_t s, const transport::FrameHeader& header);

  // The mask of shard `s` is known.
  void note_mask(int32_t s);
  // The result of shard `s` is received: commits it, and gives it to the caller.
  void receive(int32_t s);
  // Receives the results that were closed here, as far as that is safe. Requires: no
  // new view is promised.
  void receive_closed();
  // True if receive_closed() must be called again in the next turn.
  bool looks_again() const { return looks_again_; }
  // Bytes that shard `s` counts in the log of results, for members that have not
  // called. Counted once.
  uint64_t charge(int32_t s);
  // Releases the contributions of a shard that is done, or has another owner.
  void let_go(int32_t s);
  // Copies the result of shard `s` to the caller, if the caller is here.
  void copy_to_caller(int32_t s);
  // True if another member of the view needs the result.
  bool is_needed() const;

 private:
  Status read_mask(PartialShard& shard, std::span<const std::byte> bytes) const;
  void acknowledge(int32_t s);
  void commit(const PartialShard& shard, uint64_t charge);

  straggler::GroupPolicy& group_policy_;
  PartialShards& shards_;
  IncomingFrames& incoming_;
  ResultSends& sends_;
  Contributions& contributions_;
  OwnerSuspicion& suspicion_;
  bool is_charged_ = false;  // some shard is charged
  bool looks_again_ = false;
};

}  // namespace aikido::collectives

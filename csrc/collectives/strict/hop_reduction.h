// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Strict allreduce in the hops of a HopPlan: by ring, halving-doubling, tree or
// two-level. The caller's output holds this rank's bytes of each shard. A folding hop
// sends parts of it as kContrib and folds the received bytes. A copying hop sends
// kResult, and its received bytes are written in place. Frames carry the number of the
// hop in the field of the shard.
//
// Note [frames ahead of their hop]
// Peers may be some hops ahead. A contribution waits in a buffer of its own until its
// hop, because it is sent on together with the data of the hops before. A result needs
// no such care: it contains this rank's contribution, so this rank has called, and it
// folds and sends no more bytes of the same shards.

#include <vector>

#include "collectives/operation.h"
#include "collectives/shard_plan.h"
#include "collectives/strict/hop_plan.h"
#include "kernels/reduce.h"

namespace aikido::collectives {

class HopReduction final : public Operation {
 public:
  // Requires: not the direct algorithm, more than one rank, an element or more.
  HopReduction(OperationHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> rest) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  std::vector<Rank> missing() const override;
  std::vector<Rank> awaited() const override;

 private:
  // Received data of one hop.
  struct Incoming {
    explicit Incoming(const Recycler& recycler) : early(recycler) {}
    Buffer begun;                // a frame that is arriving, to be folded
    RecycledList<Buffer> early;  // received frames that are not folded yet
    size_t bytes = 0;            // received
    size_t folded = 0;
  };
  struct Range {
    size_t begin = 0;
    size_t bytes = 0;
  };

  Status on_start() override;
  void on_message_sent(uint32_t) override { finish_if_done(); }
  size_t chunk_of(transport::FrameKind kind) const override;

  // Range of the output; empty if there is no transfer.
  Range range_of(const Transfer& transfer) const;
  bool folds(int32_t hop) const { return hop < plan_.num_folds(); }
  Incoming& incoming(int32_t hop) { return incoming_[static_cast<size_t>(hop)]; }
  void go_to(int32_t hop);
  void go_on();
  void fold(int32_t hop, const Buffer& frame);
  bool is_through(int32_t hop) const;
  void finish_if_done();

  HopPlan plan_;
  ShardPlan shards_;
  kernels::ReduceFn reduce_;
  double scale_;
  RecycledVector<Incoming> incoming_;  // by hop
  int32_t hop_ = -1;                   // present hop of this rank; -1 before the first
};

}  // namespace aikido::collectives

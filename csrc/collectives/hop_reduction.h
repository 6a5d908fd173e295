// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The strict allreduce in the hops of a HopPlan: by ring, halving-doubling, tree or
// two-level. The caller's output holds what this rank has of each shard; a folding hop
// sends parts of it as kContrib and folds what comes, a copying one sends kResult and
// is written to where it lies. The number of the hop is in the place of the shard.
//
// Note [what comes before its hop]
// Peers go ahead. A contribution waits in a buffer of its own until its hop, since it
// goes to others with what the hops before have made. A result needs no such care: it
// holds what this rank has given, so this rank has called, and nothing that it still
// folds or sends is of the same shards.

#include <vector>

#include "collectives/hop_plan.h"
#include "collectives/operation.h"
#include "collectives/shard_plan.h"
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
  // What has come for one hop.
  struct Incoming {
    explicit Incoming(const Recycler& recycler) : early(recycler) {}
    Buffer begun;                // a frame that is on its way, to be folded
    RecycledList<Buffer> early;  // frames that are here, and not folded yet
    size_t bytes = 0;            // that are here
    size_t folded = 0;
  };
  struct Range {
    size_t begin = 0;
    size_t bytes = 0;
  };

  Status on_start() override;
  void on_message_sent(uint32_t) override { finish_if_done(); }
  size_t chunk_of(transport::FrameKind kind) const override;

  // Of the output; nothing where there is no transfer.
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
  int32_t hop_ = -1;                   // that this rank is in; before the first: -1
};

}  // namespace aikido::collectives

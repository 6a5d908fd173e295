// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Reductions by direct exchange: every member sends shard s to the owner of s, which
// folds the contributions in rank order and sends the result to whom it is for: all
// (allreduce), the root (reduce), or nobody (reduce_scatter, where every member owns
// the block that it wants). Two hops whatever the number of members. Pieces of a shard
// are folded and returned as soon as all members' bytes for them are in, our own in
// parts too (parts.h). With zero elements the allreduce is the barrier. Strict: the
// result needs every member.
//
// Note [frames that wait for the fold]
// Each frame of a contribution has a buffer of its own, which goes back to the pool
// once it is folded, to be the next one's; or it stays where it lies in memory of its
// sender (transport/loans.h). So where the members keep pace a few buffers go round,
// and stay in the cache, however large the shard is.

#include <memory>
#include <vector>

#include "collectives/operation.h"
#include "collectives/shard_plan.h"
#include "kernels/reduce.h"

namespace aikido::collectives {

class DirectReduction final : public Operation {
 public:
  DirectReduction(OperationHost* host, Seq seq, Call call, Rank first_caller);
  ~DirectReduction() override;

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> rest) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  std::vector<Rank> missing() const override;
  std::vector<Rank> awaited() const override;
  Rank first_awaited() const override;

 private:
  // What has come of one member's contribution to the shard that we own.
  struct Source {
    explicit Source(const Recycler& recycler) : frames(recycler) {}
    // Not folded yet, in order; the last may be on its way.
    RecycledList<Buffer> frames;
    size_t used = 0;  // bytes of the first that are folded
    size_t total = 0;
    size_t bytes = 0;  // that are here, in order from the first
    bool is_begun = false;
    bool has_come = false;
  };
  // What has come of the result of one.
  struct Shard {
    size_t bytes = 0;
    bool has_come = false;  // whole
  };
  // What this member gives to one shard.
  struct Piece {
    const std::byte* data = nullptr;
    size_t bytes = 0;
  };

  Status on_start() override;
  void contribute();
  void on_more();
  size_t own_here(size_t bytes) const;
  void on_message_sent(uint32_t) override { finish_if_done(); }
  size_t num_receivers(transport::FrameKind kind) const override {
    const bool is_for_all = kind == transport::FrameKind::kResult && !is_for_root();
    return is_for_all ? static_cast<size_t>(host_->size() - 1) : 1;
  }
  bool is_callers(transport::FrameKind kind) const override {
    return kind == transport::FrameKind::kContrib || !scratch_;
  }

  bool is_scatter() const { return call_.kind == CallKind::kReduceScatter; }
  bool is_for_root() const { return call_.kind == CallKind::kReduce; }
  bool wants_results() const {
    return !is_scatter() && (!is_for_root() || host_->self() == call_.root);
  }
  int32_t num_shards() const {
    return is_scatter() ? host_->size() : plan_.num_shards();
  }
  Rank owner(int32_t shard) const {
    return is_scatter() ? Rank(shard) : plan_.owner(shard);
  }
  std::optional<int32_t> shard_of(Rank rank) const {
    return is_scatter() ? std::optional(rank.value) : plan_.shard_of(rank);
  }
  Piece piece(int32_t shard) const;

  size_t chunk_of(transport::FrameKind kind) const override;
  void fold_what_is_ready();
  size_t ready() const;
  void fold(size_t begin, size_t end);
  void drop_folded(size_t bytes);
  void send_result(const std::byte* data, size_t begin, size_t end);
  void finish_if_done();

  ShardPlan plan_;  // not of a reduce_scatter
  kernels::ReduceFn reduce_;
  double scale_;
  std::optional<int32_t> own_shard_;
  // Bytes of it. Blocks of a reduce_scatter may differ: known once called here.
  std::optional<size_t> own_bytes_;
  RecycledVector<Source> sources_;  // by rank, when a shard is ours
  // With parts: bytes on their way to each owner, by rank; none: nothing was sent to
  // it.
  std::vector<std::optional<size_t>> contributed_;
  Buffer scratch_;     // its result, where it is not for this member
  size_t folded_ = 0;  // bytes of it
  bool own_done_ = false;
  RecycledVector<Shard> results_;  // by shard, where they are wanted
  int32_t results_left_ = 0;
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Reductions by direct exchange. Every member sends shard s to the owner of s. The
// owner folds the contributions in rank order and sends the result to all members
// (allreduce), to the root (reduce), or to nobody (reduce_scatter, where every member
// owns its own block). There are two hops for any number of members. A piece of a shard
// is folded and returned as soon as all members' bytes for it have arrived; the own
// input may arrive in parts, too (parts.h). With zero elements the allreduce is the
// barrier. Strict: the result needs every member.
//
// Note [frames that wait for the fold]
// Each frame of a contribution has a buffer of its own. After the fold the buffer goes
// back to the pool and serves the next frame. Or the frame stays in memory of its
// sender (transport/shm/shm_leases.h). So if the members keep pace, a few buffers
// circulate and stay in the cache, for shards of any size.
//
// Note [the lead]
// Bytes that a member gives to an owner can be folded once all members have given as
// much. Bytes that a member sends earlier only fill memory and caches. Rule: a large
// allreduce sends no more ahead of the result than the lead. The lead is
// collectives.lead_bytes over all members, at least two chunks for each, and more on a
// long way (owner_send_window.h). It is counted in whole chunks; otherwise it would
// split chunks, and results too. If nothing comes back for kStill, in this call or
// another call, no owner can fold, because a member is late. Then the rest is sent at
// once, so that it has arrived when the late member calls.

#include <memory>
#include <vector>

#include "collectives/operation.h"
#include "collectives/shard_plan.h"
#include "collectives/weights.h"
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
  void on_time(TimePoint now) override;
  std::optional<TimePoint> next_look() const override;

 private:
  bool is_held_back() const { return lead_ > 0 && num_held_ > 0; }
  // Received part of one member's contribution to the shard that this member owns.
  struct FoldInput {
    explicit FoldInput(const Recycler& recycler) : frames(recycler) {}
    // Frames that are not folded yet, in order; the last may still be arriving.
    RecycledList<Buffer> frames;
    size_t used = 0;  // bytes of the first frame that are folded
    size_t total = 0;
    size_t bytes = 0;  // bytes that have arrived, in order from the first
    bool is_begun = false;
    bool has_come = false;
  };
  // Received part of the result of one shard.
  struct Shard {
    size_t bytes = 0;
    bool has_come = false;  // completely
  };
  // Weights of a weighted call.
  struct Weights {
    std::vector<double> by_rank;       // if this member owns a shard
    std::optional<WeightedMean> mean;  // of the own shard, once all weights are here
    std::optional<double> total;       // known with a result
  };
  // Contribution of this member to one shard.
  struct Piece {
    const std::byte* data = nullptr;
    size_t bytes = 0;
  };
  // Sent part of that contribution.
  struct Given {
    struct Timed {
      size_t bytes;  // position of the last timed byte
      size_t ahead;  // bytes ahead of the returned bytes at that time
      TimePoint at;
    };
    std::optional<size_t> bytes;  // nullopt: no message was sent
    std::optional<Timed> timed;   // byte whose round trip is being measured
  };
  static constexpr Duration kStill = std::chrono::milliseconds(5);

  Status on_start() override;
  size_t least_lead() const;
  void contribute();
  void contribute_to(Rank owner, int32_t shard);
  void on_more();
  size_t most_given(Rank owner, int32_t shard) const;
  size_t given_to(Rank owner, size_t bytes) const;
  void on_back(Rank owner, int32_t shard);
  size_t own_here(size_t bytes) const;
  void on_message_sent(uint32_t) override { finish_if_done(); }
  size_t num_receivers(transport::FrameKind kind) const override {
    const bool goes_to_all = kind == transport::FrameKind::kResult && !is_for_root();
    return goes_to_all ? static_cast<size_t>(host_->size() - 1) : 1;
  }
  bool is_callers(transport::FrameKind kind) const override {
    return kind == transport::FrameKind::kContrib || !scratch_;
  }

  bool is_scatter() const { return call_.kind == CallKind::kReduceScatter; }
  bool is_for_root() const { return call_.kind == CallKind::kReduce; }
  bool is_for_all() const { return !is_scatter() && !is_for_root(); }
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
  void set_mean();
  void drop_folded(size_t bytes);
  void send_result(const std::byte* data, size_t begin, size_t end);
  void finish_if_done();

  ShardPlan plan_;  // not used by a reduce_scatter
  kernels::ReduceFn reduce_;
  double scale_;
  std::optional<int32_t> own_shard_;
  // Bytes of the own shard. Blocks of a reduce_scatter may differ: known after the
  // call.
  std::optional<size_t> own_bytes_;
  RecycledVector<FoldInput> sources_;  // by rank, if this member owns a shard
  RecycledVector<Given> given_;        // by rank; empty: everything is sent at once
  size_t lead_ = 0;                    // the shortest, see Note [the lead]; 0: none
  int32_t num_held_ = 0;               // owners that have not been sent everything
  TimePoint started_at_{};
  Buffer scratch_;     // result of the own shard, if this member does not want it
  size_t folded_ = 0;  // bytes of the own shard
  bool own_done_ = false;
  std::unique_ptr<Weights> weights_;  // null: the call is not weighted
  RecycledVector<Shard> results_;     // by shard, if the results are wanted
  int32_t results_left_ = 0;
};

}  // namespace aikido::collectives

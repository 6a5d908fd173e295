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
//
// Note [the lead]
// What a member gives to an owner can be folded once all have given as much, and who
// runs ahead only fills memory and caches. So of a large allreduce no more goes ahead
// of the result than the lead: collectives.lead_bytes over all members, two chunks of
// each at least, and longer where the way is long (lead_window.h), in whole chunks, so
// that no cut is passed on. While nothing comes back for kStill, in this call or
// another, nobody can fold: then the rest goes at once, to be there when the member
// that all wait for is.

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
  void on_time(TimePoint now) override;
  std::optional<TimePoint> next_look() const override;

 private:
  bool is_held_back() const { return lead_ > 0 && num_held_ > 0; }
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
  // What has gone of that.
  struct Given {
    struct Timed {
      size_t bytes;  // their last one is
      size_t ahead;  // of what had come back
      TimePoint at;
    };
    std::optional<size_t> bytes;  // none: no message was sent
    std::optional<Timed> timed;   // on its way there and back
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
  RecycledVector<Given> given_;     // by rank; empty: all goes at once
  size_t lead_ = 0;                 // the least, see Note [the lead]; 0: none
  int32_t num_held_ = 0;            // owners that have not got all
  TimePoint started_at_{};
  Buffer scratch_;     // its result, where it is not for this member
  size_t folded_ = 0;  // bytes of it
  bool own_done_ = false;
  RecycledVector<Shard> results_;  // by shard, where they are wanted
  int32_t results_left_ = 0;
};

}  // namespace aikido::collectives

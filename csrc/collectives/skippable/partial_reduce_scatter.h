// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Reduce_scatter that can end without a late member. Rank r owns the block of rank r:
// it alone folds the block, receives it, and decides which contributions are in it. So
// no agreement is needed. Masks differ between ranks. The owner sends each skipped
// member a kResult without data, so that it sends no more to that owner.
//
// Contributions that arrive before the local call wait here, and the deadline of the
// policy runs. So when a late member calls, its block may already be decided. The block
// then contains the received contributions and its own contribution, which is always in
// its own block.
//
// Note [contribution of a departed member]
// A complete contribution counts, even if its sender has left or died since. That is
// safe because no other member decides about this block. So if a member ends its last
// call and leaves the group, slower members keep its contribution. The call of an
// excluded member that is alive fails, so its contribution is in no block.
//
// Note [slow receivers]
// The caller may write to its input when its call is over, but a slow receiver may take
// its block much later. Rule: when the own block is done, the operation waits for
// unsent bytes no longer than a copy of them would take, and then copies them. From
// then on the engine owns the bytes. The memory is bounded. A receiver that has not
// called is owed at most the log, because each operation counts in full there
// (straggler/result_log.h). A receiver that has called ends its call with our block, or
// announces that it went on without it; then the rest is cancelled. So it is owed the
// blocks of its calls under way.

#include <memory>
#include <vector>

#include "collectives/skippable/block_contributions.h"
#include "collectives/skippable/owned_shard.h"
#include "collectives/skippable/result_header.h"
#include "collectives/skippable_operation.h"

namespace aikido::collectives {

class PartialReduceScatter final : public SkippableOperation {
 public:
  PartialReduceScatter(ViewHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> rest) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  bool is_committed() const override { return is_closed_; }
  bool has_all() const override;
  bool is_own() const override { return true; }
  int32_t most_contributions(const RankSet& members) const override;
  bool was_skipped() const override { return contributions_.was_skipped(); }
  bool is_sending() const override {
    return is_over() && contributions_.num_under_way() > 0;
  }
  void on_view() override;
  void on_time(TimePoint now) override;
  std::optional<TimePoint> next_look() const override;
  std::vector<Rank> missing() const override;

 private:
  Status on_start() override;
  void on_message_sent(uint32_t token) override;
  bool is_callers(transport::FrameKind kind) const override {
    return kind == transport::FrameKind::kContrib && !is_over();
  }
  const OutBlock& block(Rank rank) const {
    return local_.out_blocks[static_cast<size_t>(rank.value)];
  }
  bool takes_part() const { return participants_.contains(host_->self()); }

  void contribute();

  // As the owner of a block.
  Result<std::byte*> place_contribution(Rank from, const transport::FrameHeader& header,
                                        std::span<const std::byte> rest);
  void make_own(size_t bytes);
  void start_policy();
  void forget(Rank rank);
  void let_go();
  RankSet whole() const;
  RankSet givers() const;
  // Input of a fold, with the own weight in a weighted call.
  Counted counted(const RankSet& mask) const {
    return {mask, {}, call_.is_weighted ? &local_.weight : nullptr};
  }
  void fold(size_t end, const RankSet& mask);
  void fold_ahead();
  bool is_held_up() const;
  void close_if_due();
  std::optional<uint64_t> received_of(Rank from) const;
  void close(const straggler::Decision& decision);
  void finish_if_done();
  Outcome make_outcome() const;
  Status excluded() const;

  kernels::ReduceFn reduce_;
  straggler::GroupPolicy& group_policy_;
  RankSet participants_;
  RankSet givers_;                   // participants, and departed members that gave all
  std::unique_ptr<OwnedShard> own_;  // while open; the first contribution sets its size
  size_t own_bytes_ = 0;
  Rank sized_by_ = kNoRank;
  RankSet receiving_;  // members with a frame that is being written to our memory
  bool is_closed_ = false;
  ResultHeader header_;
  TimePoint copy_at_{};  // after the close: time to copy unsent bytes
  BlockContributions contributions_;
};

}  // namespace aikido::collectives

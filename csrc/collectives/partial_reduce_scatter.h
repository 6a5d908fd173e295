// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Reduce_scatter that can end without a late member. The block of rank r is r's: it
// alone folds it, has it, and decides whose contributions are in it. So nobody has to
// agree with anybody: masks differ between ranks, and whoever is left out somewhere is
// told by whom (a kResult without data), so that it does not send there any more.
//
// What comes before the local call waits here, and the policy's clock runs: a late
// member finds its block decided when it calls, by what has come and its own
// contribution, which is always in its own block.
//
// Note [what a member gave before it left]
// A contribution that is here whole counts, although its giver has left or died since:
// nobody else decides about our block, so nobody can decide otherwise. One that ends
// its last call and leaves takes nothing from those behind it. One that is out and
// lives is told that its call has failed, so it is in no block.
//
// Note [a slow receiver holds nobody up]
// The caller may write to its input when its call is over, and a slow receiver may take
// its block much later. When the own block is done, what has not left is waited for no
// longer than a copy of it would take, and then copied: from there on the engine owns
// it. A receiver that has not called is owed no more than the log allows, because each
// operation counts in full there (straggler/result_log.h). One that has called ends its
// call only with our block in, or says that it went on without it, and the rest is
// cancelled: so it is owed the blocks of its calls under way.

#include <memory>
#include <vector>

#include "collectives/operation.h"
#include "collectives/owned_shard.h"
#include "collectives/verdict.h"

namespace aikido::collectives {

class PartialReduceScatter final : public Operation {
 public:
  PartialReduceScatter(OperationHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> rest) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  bool is_committed() const override { return is_closed_; }
  bool has_all() const override;
  bool is_own() const override { return true; }
  int32_t most_contributions(const RankSet& members) const override;
  bool was_skipped() const override;
  bool is_sending() const override { return is_over() && num_under_way() > 0; }
  void on_view() override;
  void on_time(TimePoint now) override;
  std::optional<TimePoint> next_look() const override;
  std::vector<Rank> missing() const override;

 private:
  // What another member gets of us.
  struct Contribution {
    transport::MessageId id = 0;
    bool is_posted = false;
    bool is_under_way = false;  // and was not withdrawn
    uint32_t token = 0;         // of the message that is
    Buffer copy;                // of what had not left when the call ended
    Verdict without_us;  // what its owner decided; the mask is empty until it says so
  };

  Status on_start() override;
  void on_message_sent(uint32_t token) override;
  bool is_callers(transport::FrameKind kind) const override {
    return kind == transport::FrameKind::kContrib && !is_over();
  }
  Contribution& to(Rank rank) { return given_[static_cast<size_t>(rank.value)]; }
  const OutBlock& block(Rank rank) const {
    return local_.out_blocks[static_cast<size_t>(rank.value)];
  }
  bool takes_part() const { return participants_.contains(host_->self()); }

  // As a contributor.
  void contribute();
  void give(Rank rank, const std::byte* data, size_t from_byte);
  void withdraw(Rank rank);
  void disown(Rank rank);
  size_t num_under_way() const;
  size_t bytes_under_way() const;
  Status read_verdict(Rank from, std::span<const std::byte> bytes);

  // As the owner of a block.
  Result<std::byte*> place_contribution(Rank from,
                                        const transport::FrameHeader& header);
  void make_own(size_t bytes);
  void start_policy();
  void forget(Rank rank);
  void let_go();
  RankSet whole() const;
  RankSet givers() const;
  void fold(size_t end, const RankSet& mask);
  void fold_ahead();
  bool is_held_up() const;
  void close_if_due();
  std::optional<uint64_t> received_of(Rank from) const;
  void close(const straggler::Decision& decision);
  void finish_if_done();
  Outcome make_outcome() const;
  Status left_out() const;

  kernels::ReduceFn reduce_;
  straggler::GroupPolicy& group_policy_;
  RankSet participants_;
  RankSet givers_;                   // and who gave all and is gone
  std::unique_ptr<OwnedShard> own_;  // while it is open; its size comes with the first
  size_t own_bytes_ = 0;
  Rank sized_by_ = kNoRank;
  RankSet receiving_;  // whose frame is being written to our memory
  bool is_closed_ = false;
  Verdict verdict_;
  TimePoint copy_at_{};              // once closed: what has not left is copied then
  std::vector<Contribution> given_;  // by rank
  uint32_t num_messages_ = 0;
  uint64_t cancelled_bytes_ = 0;
};

}  // namespace aikido::collectives

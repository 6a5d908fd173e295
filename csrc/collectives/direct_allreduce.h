// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Allreduce by direct exchange: every member sends shard s to the owner of s, the owner
// folds the contributions in rank order and sends the result back. Two hops whatever
// the number of members, 2(n-1)/n of the bucket per member and direction as in a ring.
// Pieces of a shard are folded and returned as soon as all members' bytes for them are
// in. With zero elements it is the barrier. Strict: the result needs every member.

#include <memory>
#include <vector>

#include "collectives/operation.h"
#include "collectives/shard_plan.h"
#include "kernels/reduce.h"

namespace aikido::collectives {

class DirectAllreduce final : public Operation {
 public:
  DirectAllreduce(OperationHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> extension) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  std::vector<Rank> missing() const override;

 private:
  // What has come of one member's contribution to the shard that we own.
  struct Source {
    Buffer staged;
    size_t bytes = 0;  // in order from the first
    bool has_come = false;
  };

  void on_start() override;
  void on_message_sent(uint32_t) override { finish_if_done(); }
  void fold_what_is_ready();
  void fold(size_t begin, size_t end);
  void finish_if_done();

  ShardPlan plan_;
  kernels::ReduceFn reduce_;
  double scale_;
  std::optional<int32_t> own_shard_;
  std::vector<Source> sources_;  // by rank, when a shard is ours
  size_t folded_ = 0;            // bytes of the own shard
  bool own_done_ = false;
  std::vector<size_t> result_bytes_;  // by shard
  std::vector<bool> result_has_come_;
  int32_t results_left_;
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Allreduce that can end without a late member (our design; the idea of skipping is
// AIKIDO's). Bytes flow as in DirectReduction, but the owner of a shard closes it when
// its policy says so, folds the contributions that are whole, and sends result and mask
// to all members, the late ones included. So whoever exposes a result exposes the same
// one.
//
// The operation lives on every member from the first frame on, called or not: a member
// whose caller is late still owns its shard, and keeps the results for its caller.

#include <memory>
#include <vector>

#include "collectives/operation.h"
#include "collectives/shard_plan.h"
#include "kernels/reduce.h"

namespace aikido::collectives {

class PartialAllreduce final : public Operation {
 public:
  PartialAllreduce(OperationHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> rest) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  bool is_committed() const override;
  bool is_closed() const override { return !policy_; }
  bool was_skipped() const override;
  void on_time(TimePoint now) override;
  std::optional<TimePoint> next_look() const override;
  std::vector<Rank> missing() const override;

 private:
  // One member's contribution to the shard that we own.
  struct Source {
    Buffer staged;
    size_t bytes = 0;
  };
  // One shard as every member sees it.
  struct Shard {
    straggler::RankSet mask;  // known with the first byte of the result
    straggler::Reason reason = straggler::Reason::kComplete;
    Duration deadline{};
    size_t bytes = 0;
    bool is_had = false;
    transport::MessageId contribution = 0;  // our message to its owner
  };

  Status on_start() override;
  void on_message_sent(uint32_t token) override;
  bool is_callers(transport::FrameKind kind) const override {
    return kind == transport::FrameKind::kContrib;
  }
  void close_if_due();
  void close(const straggler::Decision& decision);
  void send_result(size_t begin, size_t end);
  Status read_mask(Shard& shard, std::span<const std::byte> verdict) const;
  void had(int32_t shard);
  void copy_to_caller(size_t begin, size_t end);
  void expose_if_done();
  double scale_for(int32_t contributors) const;
  std::byte* result();

  ShardPlan plan_;
  kernels::ReduceFn reduce_;
  straggler::GroupPolicy& group_policy_;
  std::optional<int32_t> own_shard_;
  std::unique_ptr<straggler::Policy> policy_;  // while the own shard is open
  std::vector<Source> sources_;                // by rank, while it is open
  std::vector<Shard> shards_;
  int32_t shards_left_;
  // The whole bucket as committed. Results are read from here, not from the caller's
  // memory, which is the caller's again once the operation is over.
  Buffer result_;
  size_t contributions_in_flight_ = 0;
  uint64_t cancelled_bytes_ = 0;
  bool was_committed_ = false;
};

}  // namespace aikido::collectives

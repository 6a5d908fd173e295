// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Host of an operation without a group: no other member exists, and sent messages are
// only stored. One thread.

#include <memory>
#include <utility>
#include <vector>

#include "collectives/skippable_operation.h"
#include "harness/manual_clock.h"

namespace aikido::testing {

class IdleHost final : public collectives::ViewHost {
 public:
  // This is rank 0 of `size` ranks.
  explicit IdleHost(int32_t size, const collectives::OperationSettings& settings = {})
      : size_(size), view_(membership::View::first_of(size)), settings_(settings) {}

  Rank self() const override { return Rank(0); }
  int32_t size() const override { return size_; }
  uint32_t epoch() const override { return 1; }
  uint32_t view_number() const override { return view_.number; }
  const Clock& clock() const override { return manual_clock; }
  const collectives::OperationSettings& settings() const override { return settings_; }
  BufferPool& pool() override { return pool_; }
  const Recycler& recycler() const override { return recycler_; }
  // The policy of the first operation that may skip, for all of them. Such operations
  // can be made here, but not called.
  straggler::GroupPolicy& policy(const straggler::PolicyOptions& options) override {
    if (!policy_)
      policy_ = std::make_unique<straggler::GroupPolicy>(
          options, std::make_shared<straggler::ResultLog>(size_, 1000));
    return *policy_;
  }
  transport::MessageId send(Rank, transport::OutMessage&& message) override {
    queued.push_back(std::move(message));
    return queued.size();
  }
  bool send_at_once(Rank, const transport::OutMessage& message) override {
    if (takes_at_once) gone.push_back(message);
    return takes_at_once;
  }
  size_t cancel(Rank, transport::MessageId) override { return 0; }
  size_t recall(Rank, transport::MessageId) override { return 0; }
  bool reads_our_memory(Rank) override { return false; }
  collectives::Learnt& learnt(Rank r) override {
    return learnt_[static_cast<size_t>(r.value)];
  }
  std::optional<size_t> num_received(Rank, transport::FrameKind,
                                     uint64_t) const override {
    return 0;
  }
  void drop_incoming(Rank, transport::FrameKind, uint64_t) override {}
  const membership::View& view() const override { return view_; }
  bool is_promised() const override { return false; }
  bool has_gone(Rank) const override { return false; }
  bool suspect(Rank) override { return true; }
  void restore_owners(Rank) override {}
  uint64_t called_by(Rank) const override { return called; }
  uint64_t acked_by(Rank) const override { return 0; }
  void fail_everywhere(Seq, const Status&) override {}
  void note_share(Rank, size_t, size_t) override {}
  void note_given(size_t) override {}
  void note_stand_in(const straggler::StandIn&) override {}
  void on_over(Seq) override {}

  ManualClock manual_clock;
  bool takes_at_once = false;
  uint64_t called = 0;  // last operation that each other rank has called
  std::vector<transport::OutMessage> queued, gone;  // messages that were sent at once

 private:
  int32_t size_;
  membership::View view_;
  collectives::OperationSettings settings_;
  BufferPool pool_{0};
  std::unique_ptr<straggler::GroupPolicy> policy_;
  Recycler recycler_{0};
  std::vector<collectives::Learnt> learnt_{static_cast<size_t>(size_)};  // by rank
};

}  // namespace aikido::testing

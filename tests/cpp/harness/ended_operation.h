// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Operation that has a complete result, for tests of what is kept of ended calls. One
// thread.

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/skippable_operation.h"

namespace aikido::testing {

struct EndedOperation final : collectives::SkippableOperation {
  EndedOperation(collectives::ViewHost* host, uint64_t seq,
                 std::vector<membership::ReceivedShard> received = {})
      : SkippableOperation(host, Seq(seq), collectives::Call(), Rank(0)),
        received_shards(std::move(received)) {}
  Result<std::byte*> place(Rank, const transport::FrameHeader&,
                           std::span<const std::byte>) override {
    return nullptr;
  }
  void arrived(Rank, const transport::FrameHeader&) override {}
  std::vector<Rank> missing() const override { return {}; }
  Status on_start() override { return Status::ok(); }
  bool was_skipped() const override { return false; }
  bool is_committed() const override { return true; }
  int32_t most_contributions(const RankSet&) const override { return 0; }
  void on_view() override {}
  void report(std::vector<membership::ReceivedShard>& received) const override {
    received.insert(received.end(), received_shards.begin(), received_shards.end());
  }

  std::vector<membership::ReceivedShard> received_shards;
};

}  // namespace aikido::testing

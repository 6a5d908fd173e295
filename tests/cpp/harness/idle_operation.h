// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Skippable operation that does nothing by itself, for tests of the parts of such an
// operation. Its host stores the messages that the parts post. One thread.

#include <memory>
#include <utility>
#include <vector>

#include "collectives/skippable/partial_shards.h"
#include "harness/idle_host.h"

namespace aikido::testing {

struct IdleOperation : collectives::SkippableOperation {
  IdleOperation(collectives::ViewHost* host, collectives::Call of, uint64_t seq = 1)
      : SkippableOperation(host, Seq(seq), std::move(of), Rank(0)) {}
  Result<std::byte*> place(Rank, const transport::FrameHeader&,
                           std::span<const std::byte>) override {
    return nullptr;
  }
  void arrived(Rank, const transport::FrameHeader&) override {}
  std::vector<Rank> missing() const override { return {}; }
  Status on_start() override { return Status::ok(); }
  bool was_skipped() const override { return false; }
  bool is_committed() const override { return false; }
  int32_t most_contributions(const RankSet&) const override { return 0; }
  void on_view() override {}
};

// Call of an all_reduce of `count` floats that may skip.
inline collectives::Call skippable_call(uint64_t count) {
  collectives::Call call;
  call.dtype = DType::kFloat32;
  call.count = count;
  call.policy.kind = straggler::Kind::kSkip;
  return call;
}

// Cuts `shards` as the view says, into shards of at least 64 bytes, none divided.
inline void cut_whole(collectives::PartialShards& shards,
                      const membership::View& view) {
  shards.cut(view, 64);
  shards.divide(
      view, [](int32_t) { return true; }, [](int32_t) {});
}

}  // namespace aikido::testing

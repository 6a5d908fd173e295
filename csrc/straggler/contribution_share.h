// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Estimate of an uplink from cut-off contributions: could a member that owns nothing
// send as much as an owner (our design)? One thread, no clock.
//
// If a shard is closed without the rest of a contribution, the part that has arrived
// shows how much slower this uplink is than the others: their contributions have just
// arrived completely. The arrival rate of those bytes shows less. A shaper lets a burst
// pass at once for bytes that were not sent before, and bytes gather in the kernel and
// are then read at once. If nothing has arrived, the member had not begun to send,
// because it called late. That says nothing about its link.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "straggler/uplink_estimate.h"

namespace aikido::straggler {

class ContributionShare {
 public:
  // Sizes of contributions that count. A larger contribution shows a rate (uplink.h),
  // and a healthy member may call later by the time that its results took.
  static constexpr uint64_t kLeastBytes = 4 << 10;
  static constexpr uint64_t kMostBytes = 128 << 10;
  static constexpr size_t kContributions = 4;  // only the last ones count
  static constexpr size_t kLeastForNo = 2;     // fewer are enough for kNo
  static constexpr Duration kFresh = std::chrono::seconds(2);
  // Share that suits, compared with the lower median. A healthy member begins after the
  // others, because it gets its results last. It also sends a part to each owner, while
  // an owner keeps its own part. The median protects against a slow uplink that once
  // delivers more because the others close late.
  static constexpr double kEnough = 1.0 / 3;

  // A shard was closed when `here` of the `total` bytes of the contribution had
  // arrived.
  void on_close(uint64_t here, uint64_t total, TimePoint now);
  // kUnknown: too few contributions have come, or none for kFresh.
  Suits suits(TimePoint now) const;

 private:
  std::array<double, kContributions> shares_{};  // contribution i at i % kContributions
  size_t num_ = 0;
  TimePoint last_{};
};

}  // namespace aikido::straggler

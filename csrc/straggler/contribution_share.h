// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Whether the uplink of a member that owns nothing would carry what an owner sends (our
// design). One thread, no clock.
//
// Where a shard is closed without the rest of its contribution, the part that is here
// shows how much slower than the others' its uplink is: theirs have just come whole.
// How fast those bytes came shows less: what it could not send in the last steps a
// shaper lets pass at once, and bytes gather in the kernel and are then read at once.
// Where nothing is here it had not begun yet, because it has called late: that says
// nothing of its link.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "straggler/uplink.h"

namespace aikido::straggler {

class ContributionShare {
 public:
  // Of a contribution that counts. Of a larger one a rate can be told (uplink.h), and a
  // member that is well may call later by what its results took.
  static constexpr uint64_t kLeastBytes = 4 << 10;
  static constexpr uint64_t kMostBytes = 128 << 10;
  static constexpr size_t kContributions = 4;  // the last ones count,
  static constexpr size_t kLeastForNo = 2;     // but for a no fewer do
  static constexpr Duration kFresh = std::chrono::seconds(2);
  // One that is well begins after the others, since it gets results last. It also sends
  // a part to each owner, where an owner has its own. So this is enough, as the lower
  // median: much more comes of a slow one, too, where the others close late for once.
  static constexpr double kEnough = 1.0 / 3;

  // A shard was closed: of the `total` bytes of its contribution `here` were here.
  void on_close(uint64_t here, uint64_t total, TimePoint now);
  // kUnknown: too few have come, or none for kFresh.
  Suits suits(TimePoint now) const;

 private:
  std::array<double, kContributions> shares_{};  // contribution i at i % kContributions
  size_t num_ = 0;
  TimePoint last_{};
};

}  // namespace aikido::straggler

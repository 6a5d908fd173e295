// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How fast bytes come from a member, and how many are asked of one that owns shards
// (our design). One thread, no clock.
//
// Of large contributions only: a shaper lets pass at once what was not sent before, and
// in the few ms until a shard is closed a small one is not more than that
// (contribution_share.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace aikido::straggler {

// Measured from the beginning of a payload to its end, so that neither the computation
// of the member nor its silence count. Small payloads say nothing: they are here at
// once on any link. Nor does a single one: behind a lost packet, or while this rank had
// no processor, payloads gather in the kernel and are then read at once, whatever the
// link is. So it is the median of the last ones.
class Uplink {
 public:
  static constexpr uint64_t kLeastBytes = 4 << 10;
  static constexpr size_t kPayloads = 8;       // the last ones count,
  static constexpr size_t kLeastPayloads = 4;  // and fewer say nothing
  static constexpr Duration kFresh = std::chrono::seconds(2);

  void on_begin(TimePoint now) { begun_ = now; }
  void on_end(uint64_t bytes, TimePoint now);

  // The lower median; nothing if too few have come, or nothing for kFresh; infinite if
  // they came at once.
  std::optional<double> bytes_per_second(TimePoint now) const;

 private:
  TimePoint begun_{};
  TimePoint last_{};
  std::array<double, kPayloads> rates_{};  // payload i at i % kPayloads
  size_t num_ = 0;
};

enum class Suits : uint8_t { kUnknown, kNo, kYes };

// What calls need of each owner: as long as they are what takes the time, it is about
// what the uplinks of the others carry.
class Demand {
 public:
  static constexpr size_t kCalls = 16;  // the last ones count
  // In less time they are the buckets of one step, and say nothing.
  static constexpr Duration kLeastTime = std::chrono::milliseconds(100);

  void on_call(uint64_t bytes, TimePoint now);

  // That each of `num_owners` sends for the contributions and results of these calls:
  // 2 (n-1)/n of their bytes. 0 while too few are known.
  double bytes_per_second(int32_t num_owners) const;

  // Whether a member that sends so much to each owner could be one of `num_owners`. The
  // others get as much at the same time.
  Suits judge(std::optional<double> bytes_per_second, int32_t num_owners) const;

 private:
  struct Called {
    uint64_t bytes = 0;
    TimePoint at{};
  };
  std::array<Called, kCalls> last_{};
  uint64_t num_calls_ = 0;
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Rate of the bytes from a member, and the rate that is needed of an owner of shards
// (our design). One thread, no clock.
//
// Only large contributions count. A shaper lets a burst pass at once for bytes that
// were not sent before. In the few ms until a shard is closed, a small contribution is
// not more than such a burst (contribution_share.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace aikido::straggler {

// Rate of the uplink of one member. It is measured from the beginning of a payload to
// its end, so that neither the member's computation nor its silence counts. Small
// payloads say nothing: they arrive at once on any link. A single payload says nothing
// either: behind a lost packet, or while this rank had no processor, payloads gather in
// the kernel and are then read at once on any link. Therefore the rate is the median of
// the last payloads.
class UplinkEstimate {
 public:
  static constexpr uint64_t kLeastBytes = 4 << 10;
  static constexpr size_t kPayloads = 8;       // only the last ones count
  static constexpr size_t kLeastPayloads = 4;  // fewer say nothing
  static constexpr Duration kFresh = std::chrono::seconds(2);

  void on_begin(TimePoint now) { begun_ = now; }
  void on_end(uint64_t bytes, TimePoint now);

  // Lower median of the rates. nullopt: too few payloads, or none for kFresh. Infinite:
  // the payloads came at once.
  std::optional<double> bytes_per_second(TimePoint now) const;

 private:
  TimePoint begun_{};
  TimePoint last_{};
  std::array<double, kPayloads> rates_{};  // payload i at i % kPayloads
  size_t num_ = 0;
};

enum class Suits : uint8_t { kUnknown, kNo, kYes };

// Rate that calls need of each owner. While calls are limited by their transfers, this
// is about the rate that the uplinks of the other members carry.
class Demand {
 public:
  static constexpr size_t kCalls = 16;  // the last ones count
  // Calls within a shorter time are the buckets of one step, and say nothing.
  static constexpr Duration kLeastTime = std::chrono::milliseconds(100);

  void on_call(uint64_t bytes, TimePoint now);

  // Rate at which each of `num_owners` owners sends for the contributions and results
  // of these calls: 2 (n-1)/n of their bytes. 0 while too few calls are known.
  double bytes_per_second(int32_t num_owners) const;

  // Judges if a member that sends at this rate to each owner could be one of
  // `num_owners` owners. The others receive the same rate at the same time.
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

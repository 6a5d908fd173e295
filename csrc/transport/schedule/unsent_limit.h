// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Limit of the unsent bytes in the kernel (our design). Pure; one thread.
//
// Unsent bytes in the kernel cannot be cancelled, and delay urgent data: 256 KiB are
// 200 ms on a link of 10 Mbit/s. With too few, a fast link has nothing to send until
// this process wakes up. So the limit follows the rate at which the kernel takes bytes
// while more are waiting. It begins with the least value, because nothing is known of
// the link yet. If the kernel has sent everything before the next write, the rate shows
// how often this process writes, and not the speed of the link. Then the limit must
// grow.

#include <cstddef>
#include <optional>

#include "base/clock.h"

namespace aikido::transport {

class UnsentLimit {
 public:
  static constexpr size_t kLeast = 32 << 10;
  static constexpr size_t kMost = 256 << 10;
  // Time at the measured rate that the limit covers. A wake-up takes a small part of
  // it.
  static constexpr Duration kWorth = std::chrono::milliseconds(4);
  // A rate is measured over so many bytes, or so long.
  static constexpr size_t kSampleBytes = 64 << 10;
  static constexpr Duration kSampleTime = std::chrono::milliseconds(20);

  // The socket is full. From now on it takes bytes as fast as it sends them.
  void on_full(TimePoint now);
  // The socket took `bytes`. `ran_dry`: it had sent all earlier bytes. Returns a new
  // limit if it ran dry, or if the rate asks for at least twice or at most half of the
  // present limit.
  std::optional<size_t> on_taken(size_t bytes, bool ran_dry, TimePoint now);

  size_t bytes() const { return limit_; }

 private:
  size_t limit_ = kLeast;
  TimePoint since_{};
  size_t taken_ = 0;
  bool ran_dry_ = false;
};

}  // namespace aikido::transport

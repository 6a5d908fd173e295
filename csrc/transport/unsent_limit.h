// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How many bytes may wait unsent in the kernel (our design). What is there cannot be
// cancelled, and waits in front of what is more urgent: on a link of 10 Mbit/s 256 KiB
// are 200 ms. Too few, and a fast link has nothing to send until we are woken. So it
// follows the rate at which the kernel takes bytes while more are there than it takes,
// beginning with the least: a link may turn bad before anything is known of it. Where
// the kernel has nothing left to send before we come to give it more, the rate says how
// often we come and not how fast the link is, and more should wait there.
// Pure; one thread.

#include <cstddef>
#include <optional>

#include "base/clock.h"

namespace aikido::transport {

class UnsentLimit {
 public:
  static constexpr size_t kLeast = 32 << 10;
  static constexpr size_t kMost = 256 << 10;
  // So much of the rate; a wake-up takes a small part of it.
  static constexpr Duration kWorth = std::chrono::milliseconds(4);
  // A rate is measured over so much, or so long.
  static constexpr size_t kSampleBytes = 64 << 10;
  static constexpr Duration kSampleTime = std::chrono::milliseconds(20);

  // The socket takes no more. What it takes from here on it takes as fast as it sends.
  void on_full(TimePoint now);
  // It took `bytes`; `ran_dry`: all that it had before was sent. Returns a new limit
  // when the present one is far from what the rate asks for, at least twice or at most
  // half, or when it ran dry.
  std::optional<size_t> on_taken(size_t bytes, bool ran_dry, TimePoint now);

  size_t bytes() const { return limit_; }

 private:
  size_t limit_ = kLeast;
  TimePoint since_{};
  size_t taken_ = 0;
  bool ran_dry_ = false;
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A clock that stands still until the test moves it. Any thread may read it.

#include <atomic>

#include "base/clock.h"

namespace aikido::testing {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return now_; }
  [[nodiscard]] TimePoint latest() const override { return now() + turn_.load(); }
  [[nodiscard]] TimePoint read_before() const override {
    return now() - unread_.load();
  }
  void advance(Duration d) { now_ = now_.load() + d; }
  // The turn that is under way has lasted for so long.
  void set_turn(Duration d) { turn_ = d; }
  // Data that have arrived for so long may be unread.
  void set_unread(Duration d) { unread_ = d; }

 private:
  std::atomic<TimePoint> now_{TimePoint(Duration(1))};
  std::atomic<Duration> turn_{};
  std::atomic<Duration> unread_{};
};

}  // namespace aikido::testing

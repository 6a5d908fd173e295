// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Clock that stands still until the test moves it. Any thread may read it.

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
  // Sets the time for which the current turn has lasted.
  void set_turn(Duration d) { turn_ = d; }
  // Sets the time for which arrived data may have been unread.
  void set_unread(Duration d) { unread_ = d; }

 private:
  std::atomic<TimePoint> now_{TimePoint(Duration(1))};
  std::atomic<Duration> turn_{};
  std::atomic<Duration> unread_{};
};

}  // namespace aikido::testing

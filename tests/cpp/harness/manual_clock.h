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
  void advance(Duration d) { now_ = now_.load() + d; }
  // The turn that is under way has lasted for so long.
  void set_turn(Duration d) { turn_ = d; }

 private:
  std::atomic<TimePoint> now_{TimePoint(Duration(1))};
  std::atomic<Duration> turn_{};
};

}  // namespace aikido::testing

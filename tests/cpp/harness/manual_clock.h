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
  void advance(Duration d) { now_ = now_.load() + d; }

 private:
  std::atomic<TimePoint> now_{TimePoint(Duration(1))};
};

}  // namespace aikido::testing

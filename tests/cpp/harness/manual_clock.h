// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A clock that stands still until the test moves it.

#include "base/clock.h"

namespace aikido::testing {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return now_; }
  void advance(Duration d) { now_ += d; }

 private:
  TimePoint now_{Duration(1)};
};

}  // namespace aikido::testing

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/clock.h"

namespace aikido {

TimePoint SystemClock::now() const {
  return TimePoint(std::chrono::duration_cast<Duration>(
      std::chrono::steady_clock::now().time_since_epoch()));
}

}  // namespace aikido

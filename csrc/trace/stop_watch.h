// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Detector of times when the process did not run: it was stopped, its machine slept, or
// others took all processors. Pure: takes regular looks, returns spans. One thread.

#include <optional>

#include "trace/span.h"

namespace aikido::trace {

class StopWatch {
 public:
  // Interval of the looks.
  static constexpr Duration kInterval = std::chrono::milliseconds(40);
  // A look that is later than this is a stop. Far more than a busy machine delays a
  // thread that mostly sleeps.
  static constexpr Duration kTolerance = std::chrono::milliseconds(80);

  // Span since the last look, if it was a stop.
  std::optional<Span> look(TimePoint now);
  // The next look counts as the first.
  void restart() { last_.reset(); }

 private:
  std::optional<TimePoint> last_;
};

}  // namespace aikido::trace

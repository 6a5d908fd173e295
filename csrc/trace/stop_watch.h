// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Tells when the process did not run: it was stopped, its machine slept, or others took
// all processors. PURE: looks at regular times in, spans out. One thread.

#include <optional>

#include "trace/span.h"

namespace aikido::trace {

class StopWatch {
 public:
  // How often it wants to be asked.
  static constexpr Duration kInterval = std::chrono::milliseconds(40);
  // A look that comes so much later than it should is a stop. Far above what a busy
  // machine makes a thread wait that mostly sleeps.
  static constexpr Duration kTolerance = std::chrono::milliseconds(80);

  // What has passed since the last look, if that was a stop.
  std::optional<Span> look(TimePoint now);
  // The next look is the first.
  void restart() { last_.reset(); }

 private:
  std::optional<TimePoint> last_;
};

}  // namespace aikido::trace

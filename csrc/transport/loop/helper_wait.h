// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Wait of a thread that runs turns of an event loop until its work is over: what it
// does between two turns, and on which core. Only that thread uses it, and only one
// thread at a time waits in this way.

#include <optional>
#include <random>

#include "base/clock.h"
#include "base/core.h"
#include "transport/loop/crowded_wait.h"
#include "transport/loop/shared_core.h"
#include "transport/loop/two_phase_wait.h"

namespace aikido::transport {

class HelperWait {
 public:
  using Step = TwoPhaseWait::Step;

  // A wait begins. Does not sleep for `spin` after an event.
  void begin(TimePoint now, Duration spin) {
    wait_.begin(spin);
    crowded_.begin(now);
  }
  // Next step, if the last turn `did` something or not.
  Step next(TimePoint now, bool did) { return wait_.next(now, did); }
  // True if look_for_core() is due beside that step.
  bool is_look_due(Step step, TimePoint now) {
    return step != Step::kLook && crowded_.is_due(now);
  }
  // Lets another thread run: the awaited thread may have no other core.
  void yield();
  // Called during a long wait. Leaves a crowded core while another core is idle.
  void look_for_core();
  void end() {
    ready_.reset();
    other_cores_.come_back();
  }

 private:
  SystemClock clock_;
  TwoPhaseWait wait_;
  SharedCore core_{std::random_device{}()};
  CrowdedWait crowded_{std::random_device{}()};
  std::optional<ReadyThreads> ready_;  // of a long wait
  OtherCores other_cores_;
};

}  // namespace aikido::transport

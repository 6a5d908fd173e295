// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/helper_wait.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::transport;

TEST_CASE("a wait looks first, and looks for another core only when it is long") {
  HelperWait wait;
  const TimePoint start{std::chrono::seconds(100)};
  wait.begin(start, Duration::zero());
  CHECK(wait.next(start, true) == HelperWait::Step::kLook);
  const TimePoint late = start + std::chrono::seconds(10);
  CHECK_FALSE(wait.is_look_due(HelperWait::Step::kLook, late));
  CHECK_FALSE(wait.is_look_due(HelperWait::Step::kSleep, start));
  CHECK(wait.is_look_due(HelperWait::Step::kSleep, late));
  wait.end();
}

TEST_CASE("a wait may yield and look for a core, and begin again") {
  HelperWait wait;
  const SystemClock clock;
  for (int i = 0; i < 2; ++i) {
    wait.begin(clock.now(), std::chrono::milliseconds(1));
    wait.yield();
    wait.look_for_core();
    wait.end();
  }
  wait.begin(clock.now(), std::chrono::milliseconds(1));
  CHECK(wait.next(clock.now(), true) == HelperWait::Step::kLook);
}

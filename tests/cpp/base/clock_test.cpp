// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/clock.h"

#include "harness/catch.h"
#include "harness/manual_clock.h"

namespace aikido {
namespace {

using std::chrono::milliseconds;

TEST_CASE("the system clock never goes backwards", "[base]") {
  const SystemClock clock;
  TimePoint before = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const TimePoint now = clock.now();
    REQUIRE(now >= before);
    before = now;
  }
}

TEST_CASE("a manual clock moves only when it is told to", "[base]") {
  testing::ManualClock clock;
  const TimePoint start = clock.now();
  CHECK(clock.now() == start);
  clock.advance(milliseconds(5));
  CHECK(clock.now() - start == milliseconds(5));
}

TEST_CASE("durations convert to and from milliseconds and seconds", "[base]") {
  CHECK(to_ms(Duration(1'500'000)) == 1.5);
  CHECK(to_seconds(milliseconds(250)) == 0.25);
  CHECK(from_ms(1.5) == Duration(1'500'000));
  CHECK(from_ms(0.0000019) == Duration(1));
  CHECK(from_ms(-0.0000019) == Duration(-1));
  CHECK(scaled(milliseconds(3), 1.5) == from_ms(4.5));
  CHECK(scaled(Duration(-3), 0.5) == Duration(-1));
}

}  // namespace
}  // namespace aikido

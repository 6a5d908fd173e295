// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/relay_pace.h"

#include "harness/catch.h"

using aikido::collectives::RelayPace;
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE("a pace is the last measurement that was long enough") {
  RelayPace pace;
  CHECK(pace.bytes_per_second() == 0);
  pace.on_passed(1000, RelayPace::kEnough - microseconds(1), false);
  CHECK(pace.bytes_per_second() == 0);
  pace.on_passed(4000, milliseconds(4), false);
  CHECK(pace.bytes_per_second() == Approx(1e6));
  pace.on_passed(20'000, milliseconds(10), true);
  CHECK(pace.bytes_per_second() == Approx(2e6));
  // A buffer takes these bytes at the start of the next measurement.
  pace.on_passed(100'000, microseconds(50), false);
  CHECK(pace.bytes_per_second() == Approx(2e6));
  CHECK(pace.longest() == 100'000);
}

TEST_CASE("measurements that are too short count together") {
  RelayPace pace;
  for (int i = 0; i < 3; ++i) {
    // Both calls count as one measurement, because the second continues the first.
    pace.on_passed(2000, microseconds(500), false);
    pace.on_passed(8000, milliseconds(1), true);
    CHECK(pace.bytes_per_second() == 0);
  }
  pace.on_passed(8000, milliseconds(1), true);
  CHECK(pace.bytes_per_second() == Approx(8e6));
  CHECK(pace.longest() == 8000);
  // Short measurements before a long one do not count any more.
  for (int i = 0; i < 3; ++i) pace.on_passed(1'000'000, milliseconds(1), true);
  pace.on_passed(4000, milliseconds(4), true);
  CHECK(pace.bytes_per_second() == Approx(1e6));
  for (int i = 0; i < 3; ++i) pace.on_passed(1'000'000, milliseconds(1), true);
  CHECK(pace.bytes_per_second() == Approx(1e6));
}

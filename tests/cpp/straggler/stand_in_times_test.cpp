// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/stand_in_times.h"

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::kBytes;
using testing::ms;
using testing::skip_options;

TEST_CASE("at first patience follows the operation and the longest known time") {
  PolicyOptions options = skip_options();
  options.warmup_operations = 3;
  StandInTimes times(options);
  CHECK(times.patience(kBytes, ms(0)) == ms(20));  // the floor
  CHECK(times.patience(kBytes, ms(50)) == ms(100));
  times.on_taken(kBytes, ms(200));
  times.on_taken(kBytes, ms(2));
  CHECK(times.patience(kBytes, ms(50)) == ms(300));
  CHECK(times.patience(kBytes, ms(500)) == ms(1000));
  CHECK(times.patience(1, ms(0)) == ms(20));  // another class
}

TEST_CASE("later patience is the slack times the time of nine out of ten stand-ins") {
  PolicyOptions options = skip_options();
  StandInTimes times(options);
  for (int i = 1; i <= 10; ++i) times.on_taken(kBytes, ms(100 * i));
  CHECK(times.patience(kBytes, ms(5000)) == ms(1350));
  // A wait that was given up makes the next patience longer. A single slow time is soon
  // forgotten.
  times.on_taken(kBytes, ms(1350));
  for (int i = 0; i < 50; ++i) times.on_taken(kBytes, ms(10));
  CHECK(times.patience(kBytes, ms(0)) == ms(750));
  for (int i = 0; i < 14; ++i) times.on_taken(kBytes, ms(10));
  CHECK(times.patience(kBytes, ms(0)) == ms(20));
}

TEST_CASE("patience never exceeds the ceiling, nor the time-out of the calls") {
  PolicyOptions options = skip_options();
  options.ceiling = ms(400);
  StandInTimes times(options);
  CHECK(times.patience(kBytes, ms(1000)) == ms(400));
  times.limit(ms(150));
  CHECK(times.patience(kBytes, ms(1000)) == ms(150));
}

}  // namespace
}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/owner_watch.h"

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::ms;

constexpr uint64_t kSize = 1 << 20;
constexpr Duration kLong =
    std::chrono::milliseconds(1200);  // time of the rest of the operation

PolicyOptions watched() {
  PolicyOptions options;
  options.kind = Kind::kSkip;
  options.floor = ms(5);
  options.ceiling = ms(1000);
  options.slack = 1.5;
  options.warmup_operations = 8;
  return options;
}

TEST_CASE("an owner has time until the ceiling while nothing is known of its size") {
  OwnerWatch watch(watched());
  for (int i = 0; i < 7; ++i) {
    watch.on_lag(kSize, ms(10));
    CHECK(watch.deadline(kSize, kLong) == ms(1000));
  }
  watch.on_lag(kSize, ms(10));
  CHECK(watch.deadline(kSize, kLong) == ms(300));  // a quarter
  CHECK(watch.deadline(kSize, ms(100)) == ms(30));
  // Another size has its own statistics.
  CHECK(watch.deadline(kSize << 4, kLong) == ms(1000));
  CHECK(watch.deadline(0, kLong) == ms(1000));
}

TEST_CASE("the deadline follows the 19th of 20 lags, within bounds") {
  struct Row {
    const char* name;
    double usual_ms, rare_ms;
    int every;  // number of usual times per rare time
    double expected_ms;
  };
  for (const Row& row : {
           Row{"steady", 120, 120, 1, 360},
           Row{"a rare one does not count", 120, 500, 31, 360},
           Row{"one in four does", 120, 200, 4, 600},
           Row{"no less than a quarter of all else", 10, 10, 1, 300},
           Row{"no more than the ceiling", 900, 900, 1, 1000},
           Row{"what is beyond the ceiling is the ceiling", 5000, 5000, 1, 1000},
       }) {
    OwnerWatch watch(watched());
    for (int i = 1; i <= 64; ++i)
      watch.on_lag(kSize, ms(i % (row.every + 1) == 0 ? row.rare_ms : row.usual_ms));
    INFO(row.name);
    CHECK(watch.deadline(kSize, kLong) == ms(row.expected_ms));
  }
}

TEST_CASE("an owner has no more time than the rest of the operation took") {
  OwnerWatch watch(watched());
  CHECK(watch.deadline(kSize, ms(300)) == ms(300));
  CHECK(watch.deadline(kSize, ms(1)) == ms(2.5));  // half of the floor
  for (int i = 0; i < 64; ++i) watch.on_lag(kSize, ms(200));
  CHECK(watch.deadline(kSize, ms(300)) == ms(300));
  CHECK(watch.deadline(kSize, ms(700)) == ms(600));
}

TEST_CASE("old lags are forgotten, and a result before its time has no lag") {
  OwnerWatch watch(watched());
  for (int i = 0; i < 64; ++i) watch.on_lag(kSize, ms(200));
  CHECK(watch.deadline(kSize, kLong) == ms(600));
  for (int i = 0; i < 64; ++i) watch.on_lag(kSize, ms(-3));
  CHECK(watch.deadline(kSize, ms(400)) == ms(100));
  CHECK(watch.deadline(kSize, ms(8)) == ms(2.5));
}

}  // namespace
}  // namespace aikido::straggler

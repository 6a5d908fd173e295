// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/wakeups.h"

#include <algorithm>
#include <random>

#include "harness/catch.h"

using namespace aikido;
using transport::Wakeups;

TEST_CASE("the earliest of many times is correct after every change") {
  std::mt19937_64 random(1);
  Wakeups wakeups;
  CHECK(wakeups.earliest_time() == Wakeups::kNever);
  std::vector<TimePoint> times;
  for (int i = 0; i < 2000; ++i) {
    if (times.size() < 37 && random() % 4 == 0) {
      REQUIRE(wakeups.add() == times.size());
      times.push_back(Wakeups::kNever);
    }
    if (times.empty()) continue;
    const size_t which = random() % times.size();
    times[which] = random() % 5 == 0
                       ? Wakeups::kNever
                       : TimePoint(Duration(static_cast<int64_t>(random() % 50)));
    wakeups.set(which, times[which]);
    const auto first = std::min_element(times.begin(), times.end());
    REQUIRE(wakeups.earliest_time() == *first);
    if (*first < Wakeups::kNever)
      REQUIRE(wakeups.earliest() == static_cast<size_t>(first - times.begin()));
    const TimePoint now(Duration(static_cast<int64_t>(random() % 50)));
    const size_t from = random() % (times.size() + 1);
    const auto due = std::find_if(times.begin() + static_cast<ptrdiff_t>(from),
                                  times.end(), [&](TimePoint t) { return t <= now; });
    REQUIRE(wakeups.due(from, now) == static_cast<size_t>(due - times.begin()));
  }
}

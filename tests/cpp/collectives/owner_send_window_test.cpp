// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/owner_send_window.h"

#include <algorithm>

#include "harness/catch.h"

using namespace aikido;
using aikido::collectives::OwnerSendWindow;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

// Model of an owner and of the way to it. `way` is the time there and back, and `work`
// is the owner's time for the smallest window. A full window follows when the one
// before it is back.
struct Path {
  Duration way, work;

  void run(OwnerSendWindow& window, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const auto times = window.times();
      const Duration took = std::max(way + work, static_cast<int>(times) * work);
      now += took;
      window.on_back(static_cast<double>(times), took, now);
    }
  }

  TimePoint now{Duration(1)};
};

}  // namespace

TEST_CASE("the window stays small if the work takes longer than the way") {
  OwnerSendWindow window;
  Path path{microseconds(20), milliseconds(1)};
  path.run(window, 100);
  CHECK(window.times() <= 2);
}

TEST_CASE("the window covers a long way, and is not much longer than needed") {
  for (const int windows : {2, 5, 17, 40}) {
    OwnerSendWindow window;
    Path path{milliseconds(windows), milliseconds(1)};
    path.run(window, 100);
    const auto times = static_cast<int>(window.times());
    CHECK(times >= windows);
    CHECK(times <= windows + 2);
  }
  OwnerSendWindow window;
  Path path{milliseconds(10'000), milliseconds(1)};
  path.run(window, 100);
  CHECK(window.times() == OwnerSendWindow::kMostTimes);
}

TEST_CASE("results that come back late make the window smaller, down to the smallest") {
  OwnerSendWindow window;
  Path path{milliseconds(20), milliseconds(1)};
  path.run(window, 3);
  REQUIRE(window.times() == 8);
  for (const size_t expected : {7u, 6u, 5u, 4u, 3u, 2u, 1u, 1u}) {
    path.now += milliseconds(200);
    window.on_back(static_cast<double>(window.times()), milliseconds(200), path.now);
    CHECK(window.times() == expected);
  }
}

TEST_CASE("a window that is never full gets smaller with each call") {
  OwnerSendWindow window;
  Path path{milliseconds(20), milliseconds(1)};
  path.run(window, 2);
  for (const size_t expected : {4u, 3u, 2u, 1u, 1u}) {
    CHECK(window.times() == expected);
    window.on_all_went();
  }
}

TEST_CASE("a call to which nothing comes back makes the window one longer") {
  OwnerSendWindow window;
  window.on_still();
  CHECK(window.times() == 2);
  for (size_t i = 0; i < 2 * OwnerSendWindow::kMostTimes; ++i) window.on_still();
  CHECK(window.times() == OwnerSendWindow::kMostTimes);
}

TEST_CASE("only a full window grows") {
  OwnerSendWindow window;
  TimePoint now{Duration(1)};
  window.on_back(0.5, milliseconds(1), now);
  CHECK(window.times() == 1);
  window.on_back(1, milliseconds(1), now);
  CHECK(window.times() == 2);
  window.on_back(1, milliseconds(1), now);
  CHECK(window.times() == 2);
  // Half of the data ahead has waited: less than the smallest window, and then more.
  window.on_back(1.5, milliseconds(2), now);
  CHECK(window.times() == 2);
  window.on_back(2.5, milliseconds(2), now);
  CHECK(window.times() == 1);
  // The smallest window stays as it is.
  window.on_back(1, milliseconds(50), now);
  CHECK(window.times() == 1);
}

TEST_CASE("a way that has become longer is measured again") {
  OwnerSendWindow window;
  Path path{milliseconds(1), milliseconds(1)};
  path.run(window, 10);
  path.way = milliseconds(30);
  path.run(window, 10);
  CHECK(window.times() == 1);
  path.run(window, 1000);  // more than twice kMemory
  CHECK(window.times() >= 30);
  // After a long pause it is measured at once.
  path.way = milliseconds(1);
  path.run(window, 10);
  path.way = milliseconds(30);
  path.now += 2 * OwnerSendWindow::kMemory;
  path.run(window, 10);
  CHECK(window.times() >= 30);
}

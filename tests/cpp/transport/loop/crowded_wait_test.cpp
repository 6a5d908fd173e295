// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/crowded_wait.h"

#include <set>

#include "harness/catch.h"

using namespace aikido;
using transport::CrowdedWait;

namespace {

constexpr TimePoint kBegin{std::chrono::hours(1)};
constexpr Duration kTick = CrowdedWait::kBetween;

// A waiting thread that lacks a core for a share of the time between two looks.
struct Waiter {
  explicit Waiter(uint32_t seed = 1) : wait(seed) { begin(); }

  void begin() {
    wait.begin(now);
    now += CrowdedWait::kUntilFirst;
    first_look();
  }
  void first_look() { CHECK_FALSE(wait.looked(now, waited)); }
  bool is_crowded_after(Duration without_core) {
    now += kTick;
    waited += without_core;
    return wait.looked(now, waited);
  }
  // Number of crowded looks after which the thread leaves its core, if another core is
  // idle. 0: it does not leave.
  int looks_before_leaving() {
    for (int i = 1; i <= 2 * CrowdedWait::kMostCrowded; ++i)
      if (is_crowded_after(kTick / 2) && wait.counts(true)) return i;
    return 0;
  }

  CrowdedWait wait;
  TimePoint now = kBegin;
  Duration waited = std::chrono::seconds(7);  // waited before this wait began
};

}  // namespace

TEST_CASE("a wait checks its core after a while, and then from time to time") {
  CrowdedWait wait(1);
  wait.begin(kBegin);
  const TimePoint first = kBegin + CrowdedWait::kUntilFirst;
  CHECK_FALSE(wait.is_due(first - Duration(1)));
  REQUIRE(wait.is_due(first));
  const TimePoint late = first + std::chrono::seconds(1);
  CHECK_FALSE(wait.looked(late, {}));
  CHECK_FALSE(wait.is_due(late + kTick - Duration(1)));
  CHECK(wait.is_due(late + kTick));
}

TEST_CASE("a core is crowded if a thread lacks it for a good part of the time") {
  Waiter waiter;
  CHECK_FALSE(waiter.is_crowded_after({}));
  CHECK_FALSE(
      waiter.is_crowded_after(kTick / CrowdedWait::kCrowdedShare - Duration(1)));
  CHECK(waiter.is_crowded_after(kTick / CrowdedWait::kCrowdedShare));
  CHECK(waiter.is_crowded_after(kTick));
}

TEST_CASE("time before a wait does not count") {
  Waiter waiter;
  waiter.now += std::chrono::seconds(1);
  waiter.waited += std::chrono::seconds(1);
  waiter.begin();
  CHECK_FALSE(waiter.is_crowded_after({}));
}

TEST_CASE("a thread leaves a core that stays crowded while another core is idle") {
  std::set<int> looks;
  for (uint32_t seed = 1; seed <= 100; ++seed)
    looks.insert(Waiter(seed).looks_before_leaving());
  CHECK(*looks.begin() == CrowdedWait::kLeastCrowded);
  CHECK(*looks.rbegin() == CrowdedWait::kMostCrowded);
}

TEST_CASE("a check without a crowd, or without an idle core, starts the count again") {
  Waiter waiter;
  const bool is_crowd_gone = GENERATE(false, true);
  for (int i = 0; i < 100; ++i) {
    for (int k = 1; k < CrowdedWait::kLeastCrowded; ++k) {
      REQUIRE(waiter.is_crowded_after(kTick));
      REQUIRE_FALSE(waiter.wait.counts(true));
    }
    if (is_crowd_gone) {
      REQUIRE_FALSE(waiter.is_crowded_after({}));
    } else {
      REQUIRE(waiter.is_crowded_after(kTick));
      REQUIRE_FALSE(waiter.wait.counts(false));
    }
  }
  CHECK(waiter.looks_before_leaving() >= CrowdedWait::kLeastCrowded);
}

TEST_CASE("each wait, and each count after a move, uses a new random choice") {
  Waiter waiter;
  std::set<int> within, anew;
  for (int i = 0; i < 50; ++i) within.insert(waiter.looks_before_leaving());
  for (int i = 0; i < 50; ++i) {
    waiter.begin();
    anew.insert(waiter.looks_before_leaving());
  }
  const size_t all = CrowdedWait::kMostCrowded - CrowdedWait::kLeastCrowded + 1;
  CHECK(within.size() == all);
  CHECK(anew.size() == all);
}

TEST_CASE("a system that does not count waiting time needs no more checks") {
  CrowdedWait wait(1);
  wait.begin(kBegin);
  wait.give_up();
  CHECK_FALSE(wait.is_due(kBegin + std::chrono::hours(1)));
  wait.begin(kBegin);
  CHECK_FALSE(wait.is_due(kBegin + std::chrono::hours(1)));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/shared_core.h"

#include "harness/catch.h"

using namespace aikido;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using transport::SharedCore;

namespace {

constexpr TimePoint kBegin{std::chrono::hours(1)};
constexpr Duration kShort = SharedCore::kHandedOver - nanoseconds(1);
constexpr Duration kLong = SharedCore::kHandedOver;

// Number of yields in a row that hand the core over at `now`, before the thread moves.
// 0: it does not move.
int yields_before_move(SharedCore& core, TimePoint now) {
  for (int i = 1; i <= 2 * SharedCore::kMostHandedOver; ++i) {
    if (core.yielded(now, kLong)) return i;
  }
  return 0;
}

}  // namespace

TEST_CASE("a thread that hands its core over again and again moves to another core") {
  SharedCore core(1);
  const int yields = yields_before_move(core, kBegin);
  CHECK(yields >= SharedCore::kLeastHandedOver);
  CHECK(yields <= SharedCore::kMostHandedOver);
}

TEST_CASE("a thread that has its core alone at times stays") {
  SharedCore core(1);
  for (int i = 0; i < 100; ++i) {
    for (int k = 1; k < SharedCore::kLeastHandedOver; ++k)
      REQUIRE_FALSE(core.yielded(kBegin, kLong));
    REQUIRE_FALSE(core.yielded(kBegin, kShort));
  }
}

TEST_CASE("a thread that shares its core with a computing thread stays") {
  SharedCore core(1);
  for (int i = 0; i < 100; ++i) {
    for (int k = 1; k < SharedCore::kLeastHandedOver; ++k)
      REQUIRE_FALSE(core.yielded(kBegin, kLong));
    REQUIRE_FALSE(core.yielded(kBegin, transport::TwoPhaseWait::kSlowYield));
  }
  CHECK(yields_before_move(core, kBegin) > 0);
}

TEST_CASE("one of two threads that hand a core to each other moves first") {
  int differ = 0;
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SharedCore one(seed), other(seed + 1000);
    differ += yields_before_move(one, kBegin) != yields_before_move(other, kBegin);
  }
  CHECK(differ > 70);
}

TEST_CASE("each move uses a new random choice") {
  SharedCore core(1);
  TimePoint now = kBegin;
  const int first = yields_before_move(core, now);
  bool differs = false;
  for (int i = 0; i < 20; ++i) {
    now += SharedCore::kMostRest;
    differs = differs || yields_before_move(core, now) != first;
  }
  CHECK(differs);
}

TEST_CASE("moves that do not help become rarer") {
  SharedCore core(1);
  TimePoint now = kBegin;
  REQUIRE(yields_before_move(core, now) > 0);
  Duration rest = SharedCore::kLeastRest;
  for (int i = 0; i < 12; ++i) {
    CHECK(yields_before_move(core, now + rest - nanoseconds(1)) == 0);
    now += rest;
    CHECK(yields_before_move(core, now) > 0);
    rest = std::min(2 * rest, SharedCore::kMostRest);
  }
  CHECK(rest == SharedCore::kMostRest);
}

TEST_CASE("moves that help may come sooner again") {
  SharedCore core(1);
  TimePoint now = kBegin;
  const auto be_alone = [&](int yields) {
    for (int i = 0; i < yields; ++i) REQUIRE_FALSE(core.yielded(now, kShort));
  };
  // Pause after two moves, each of which has doubled it.
  const auto rest_between_next = [&] {
    now += SharedCore::kMostRest;
    REQUIRE(yields_before_move(core, now) > 0);
    Duration rest{};
    while (yields_before_move(core, now + rest) == 0) rest += SharedCore::kLeastRest;
    now += rest;
    return rest / SharedCore::kLeastRest;
  };
  CHECK(rest_between_next() == 1);
  CHECK(rest_between_next() == 4);
  be_alone(SharedCore::kAlone - 1);
  CHECK(rest_between_next() == 16);
  be_alone(3 * SharedCore::kAlone);
  CHECK(rest_between_next() == 8);
  be_alone(100 * SharedCore::kAlone);
  CHECK(rest_between_next() == 1);
}

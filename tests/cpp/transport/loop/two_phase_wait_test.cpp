// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/two_phase_wait.h"

#include "harness/catch.h"

using namespace aikido;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::TwoPhaseWait;
using Step = TwoPhaseWait::Step;

namespace {

constexpr TimePoint kBegin{std::chrono::hours(1)};

// Number of steps at `now` before the wait sleeps.
int steps_before_sleep(TwoPhaseWait& wait, TimePoint now, bool did) {
  for (int i = 0; i < 1000; ++i) {
    if (wait.next(now, did && i == 0) == Step::kSleep) return i;
  }
  return 1000;
}

}  // namespace

TEST_CASE("a wait first polls, then yields before each poll, and then sleeps") {
  TwoPhaseWait wait;
  wait.begin({});
  CHECK(wait.next(kBegin, true) == Step::kLook);
  for (int i = 1; i < TwoPhaseWait::kMostLooks; ++i)
    REQUIRE(wait.next(kBegin, false) == Step::kYield);
  CHECK(wait.next(kBegin, false) == Step::kSleep);
  CHECK(wait.next(kBegin, false) == Step::kSleep);
}

TEST_CASE("polls are counted again after an event, and in the next wait") {
  TwoPhaseWait wait;
  wait.begin({});
  CHECK(steps_before_sleep(wait, kBegin, true) == TwoPhaseWait::kMostLooks);
  CHECK(steps_before_sleep(wait, kBegin, false) == 0);
  CHECK(steps_before_sleep(wait, kBegin, true) == TwoPhaseWait::kMostLooks);
  wait.begin({});
  CHECK(steps_before_sleep(wait, kBegin, true) == TwoPhaseWait::kMostLooks);
}

TEST_CASE("slow yields to other threads are not counted") {
  TwoPhaseWait wait;
  wait.begin({});
  TimePoint now = kBegin;
  CHECK(wait.next(now, true) == Step::kLook);
  for (int i = 1; i < TwoPhaseWait::kMostLooks; ++i) {
    REQUIRE(wait.next(now, false) == Step::kYield);
    now += TwoPhaseWait::kSlowYield;
    wait.yielded(now, TwoPhaseWait::kSlowYield);
  }
  CHECK(wait.next(now, false) == Step::kSleep);
}

TEST_CASE("a wait does not sleep while it spins") {
  TwoPhaseWait wait;
  wait.begin(microseconds(500));
  CHECK(wait.next(kBegin, true) == Step::kLook);
  const TimePoint last = kBegin + microseconds(499);
  CHECK(steps_before_sleep(wait, last, false) == 1000);
  // The looks follow the spinning.
  CHECK(steps_before_sleep(wait, kBegin + microseconds(500), false) ==
        TwoPhaseWait::kMostLooks);
  CHECK(wait.next(last + microseconds(1), true) == Step::kLook);
  CHECK(wait.next(last + microseconds(500), false) == Step::kYield);
}

TEST_CASE("after a yield to a computing thread, waits sleep at once") {
  TwoPhaseWait wait;
  wait.begin({});
  CHECK(wait.next(kBegin, true) == Step::kLook);
  CHECK(wait.next(kBegin, false) == Step::kYield);
  const TimePoint back = kBegin + milliseconds(3);
  wait.yielded(back, milliseconds(3));
  CHECK(wait.next(back, false) == Step::kSleep);
  wait.begin({});
  const TimePoint over = back + TwoPhaseWait::kLeastTimesAsLong * milliseconds(3);
  CHECK(wait.next(over - microseconds(1), true) == Step::kSleep);
  CHECK(wait.next(over, true) == Step::kLook);
  CHECK(wait.next(over, false) == Step::kYield);
}

TEST_CASE("more slow yields make waits sleep longer, until many yields are fast") {
  TwoPhaseWait wait;
  wait.begin({});
  TimePoint now = kBegin;
  // Returns from a slow yield. The result is the time for which no wait yields
  // afterwards.
  const auto sleeps_for = [&] {
    now += milliseconds(2);
    wait.yielded(now, milliseconds(2));
    const TimePoint begin = now;
    while (wait.next(now, true) == Step::kSleep) now += milliseconds(1);
    return now - begin;
  };
  CHECK(sleeps_for() == milliseconds(2 * 100));
  CHECK(sleeps_for() == milliseconds(2 * 400));
  const auto yield_well = [&](int times) {
    for (int i = 0; i < times; ++i) wait.yielded(now, microseconds(1));
  };
  yield_well(TwoPhaseWait::kGoodYields - 1);
  CHECK(sleeps_for() == milliseconds(2 * 1600));
  yield_well(TwoPhaseWait::kGoodYields - 1);  // not consecutive with the slow yields
  CHECK(sleeps_for() == milliseconds(2 * 6400));
  CHECK(sleeps_for() == milliseconds(2 * 6400));
  yield_well(TwoPhaseWait::kGoodYields);
  CHECK(sleeps_for() == milliseconds(2 * 100));
}

TEST_CASE("a process that was stopped in a yield does not sleep for long") {
  TwoPhaseWait wait;
  wait.begin({});
  wait.yielded(kBegin, std::chrono::hours(1000));
  const Duration most =
      TwoPhaseWait::kLeastTimesAsLong * Duration(TwoPhaseWait::kMostYield);
  CHECK(wait.next(kBegin + most - microseconds(1), true) == Step::kSleep);
  CHECK(wait.next(kBegin + most, true) == Step::kLook);
}

TEST_CASE("a wait that must spin does so, however long its yields take") {
  TwoPhaseWait wait;
  wait.begin(milliseconds(20));
  CHECK(wait.next(kBegin, true) == Step::kLook);
  wait.yielded(kBegin + milliseconds(3), milliseconds(3));
  CHECK(wait.next(kBegin + milliseconds(3), false) == Step::kYield);
  CHECK(wait.next(kBegin + milliseconds(20), false) == Step::kSleep);
}

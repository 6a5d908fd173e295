// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/pace.h"

#include "harness/catch.h"

using namespace aikido;
using std::chrono::milliseconds;
using straggler::Pace;

namespace {

const TimePoint kBegin{milliseconds(100)};
constexpr uint64_t kTotal = 100'000;

// Looks when it is due at what is here by then, and says what is thought of it.
bool is_too_slow(std::optional<uint64_t> first, std::optional<uint64_t> second,
                 uint64_t total = kTotal, Duration first_late = {},
                 Duration second_late = {}) {
  const TimePoint due = kBegin + milliseconds(20);
  Pace pace(kBegin);
  REQUIRE(pace.next_look(due) == kBegin + milliseconds(5));
  pace.look(first, total, 1.5, due, kBegin + milliseconds(5) + first_late);
  CHECK_FALSE(pace.is_too_slow());
  REQUIRE(pace.next_look(due) == kBegin + milliseconds(10));
  pace.look(second, total, 1.5, due, kBegin + milliseconds(10) + second_late);
  CHECK_FALSE(pace.next_look(due).has_value());
  return pace.is_too_slow();
}

}  // namespace

TEST_CASE(
    "what comes in the second quarter of a wait says whether the rest is worth it") {
  // After 10 of 20 ms, 20 more are left until 1.5 times the wait is over: at the pace
  // of 5 ms four times as much comes.
  CHECK_FALSE(is_too_slow(20'000, 36'000));
  CHECK(is_too_slow(20'000, 35'999));
  CHECK(is_too_slow(0, 19'999));
  CHECK_FALSE(is_too_slow(0, 20'000));
  CHECK_FALSE(is_too_slow(kTotal, kTotal));
}

TEST_CASE("a pace says nothing of what stands still, is small, or was seen late") {
  CHECK_FALSE(is_too_slow(0, 0));
  CHECK_FALSE(is_too_slow(20'000, 20'000));
  CHECK_FALSE(is_too_slow(std::nullopt, 1));
  CHECK_FALSE(is_too_slow(1, std::nullopt));
  CHECK(is_too_slow(1, 2, Pace::kLeastBytes));
  CHECK_FALSE(is_too_slow(1, 2, Pace::kLeastBytes - 1));
  CHECK_FALSE(is_too_slow(1, 2, kTotal, milliseconds(4)));
  CHECK_FALSE(is_too_slow(1, 2, kTotal, {}, milliseconds(4)));
}

TEST_CASE("nobody looks at a short wait") {
  const Pace pace(kBegin);
  CHECK(pace.next_look(kBegin + Pace::kLeastWait).has_value());
  CHECK_FALSE(pace.next_look(kBegin + Pace::kLeastWait - Duration(1)).has_value());
}

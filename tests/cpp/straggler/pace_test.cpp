// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/pace.h"

#include "harness/catch.h"

using namespace aikido;
using std::chrono::milliseconds;
using straggler::Pace;

namespace {

constexpr Duration kLeastWait = milliseconds(8), kWait = milliseconds(20);
constexpr uint64_t kTotal = 100'000;
using Here = std::optional<uint64_t>;
using enum Pace::Finding;
using enum Pace::Of;

// Looks twice, each time when a look is due, with these bytes received by then. Returns
// the finding.
Pace::Finding finding(Here first, Here second, uint64_t total = kTotal,
                      Duration first_late = {}, Duration second_late = {},
                      Pace::Of of = kResult) {
  Pace pace(of, kLeastWait);
  REQUIRE(pace.next_look(kWait) == milliseconds(5));
  CHECK(pace.look({first}, total, 1.5, kWait, milliseconds(5) + first_late).empty());
  REQUIRE(pace.next_look(kWait) == milliseconds(10));
  const auto found =
      pace.look({second}, total, 1.5, kWait, milliseconds(10) + second_late);
  CHECK(pace.next_look(kWait).has_value() == (of == kResult));
  return found.empty() ? kNothing : found.front();
}

}  // namespace

TEST_CASE("the bytes in the second quarter of a wait show if the rest is worth it") {
  // After 10 of 20 ms, 20 ms are left until 1.5 times the wait has passed. At the pace
  // of these 5 ms, four times as many bytes arrive in that time.
  CHECK(finding(20'000, 36'000) == kInTime);
  CHECK(finding(20'000, 35'999) == kTooSlow);
  CHECK(finding(0, 19'999) == kTooSlow);
  CHECK(finding(0, 20'000) == kInTime);
  CHECK(finding(kTotal, kTotal) == kNothing);  // nothing was missing
}

TEST_CASE("a pace says nothing about payloads that have not begun, or were seen late") {
  CHECK(finding(0, 0) == kNothing);
  CHECK(finding(0, 0, kTotal, {}, {}, kContribution) == kNothing);
  CHECK(finding(std::nullopt, 1) == kNothing);
  CHECK(finding(1, std::nullopt) == kNothing);
  CHECK(finding(1, 2, kTotal, milliseconds(4)) == kNothing);
  CHECK(finding(1, 2, kTotal, {}, milliseconds(4)) == kNothing);
}

TEST_CASE("a small payload is never too slow, but may be in time") {
  CHECK(finding(1, 2, Pace::kLeastBytes) == kTooSlow);
  CHECK(finding(1, 2, Pace::kLeastBytes - 1) == kNothing);
  CHECK(finding(4'000, 12'000, 16'000) == kInTime);
}

TEST_CASE("a contribution that stands still is too slow, and a result is not") {
  CHECK(finding(20'000, 20'000) == kNothing);
  CHECK(finding(20'000, 20'000, kTotal, {}, {}, kContribution) == kTooSlow);
  CHECK(finding(kTotal, kTotal, kTotal, {}, {}, kContribution) == kInTime);
}

TEST_CASE("a result that begins late is looked at once more when the wait is over") {
  struct Row {
    uint64_t here;
    Duration late;
    Pace::Finding finding;
  };
  // 10 ms are left, as many as have passed since the previous look.
  const Row row =
      GENERATE(Row{50'000, {}, kInTime}, Row{49'999, {}, kTooSlow},
               Row{0, {}, kNothing}, Row{50'000, milliseconds(4), kNothing});
  CAPTURE(row.here, row.late.count());
  Pace pace(kResult, kLeastWait);
  pace.look({0}, kTotal, 1.5, kWait, milliseconds(5));
  CHECK(pace.look({0}, kTotal, 1.5, kWait, milliseconds(10)).front() == kNothing);
  REQUIRE(pace.next_look(kWait) == kWait);
  const auto found = pace.look({row.here}, kTotal, 1.5, kWait, kWait + row.late);
  CHECK((found.empty() ? kNothing : found.front()) == row.finding);
  CHECK_FALSE(pace.next_look(kWait).has_value());
}

TEST_CASE("each of several sources has its own pace") {
  Pace pace(kResult, kLeastWait);
  pace.look({0, 1'000, std::nullopt, 30'000}, kTotal, 1.5, kWait, milliseconds(5));
  CHECK(pace.look({20'000, 2'000, 9, 31'000}, kTotal, 1.5, kWait, milliseconds(10)) ==
        std::vector<Pace::Finding>{kInTime, kTooSlow, kNothing, kTooSlow});
}

TEST_CASE("a short wait has no looks") {
  const Pace pace(kResult, kLeastWait);
  CHECK(pace.next_look(kLeastWait).has_value());
  CHECK_FALSE(pace.next_look(kLeastWait - Duration(1)).has_value());
}

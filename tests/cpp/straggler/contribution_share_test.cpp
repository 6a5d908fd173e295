// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/contribution_share.h"

#include "harness/catch.h"

namespace aikido::straggler {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kTotal = 96'000;

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

void close(ContributionShare& share, int times, uint64_t here,
           uint64_t total = kTotal) {
  for (int i = 0; i < times; ++i) share.on_close(here, total, at(100));
}

TEST_CASE("a third of the last contributions at the close is enough") {
  ContributionShare share;
  close(share, 4, 31'999);
  CHECK(share.suits(at(100)) == Suits::kNo);
  close(share, 4, 32'000);
  CHECK(share.suits(at(100)) == Suits::kYes);
  // The share must hold in most operations, because a traffic shaper passes saved-up
  // bytes at times.
  close(share, 2, 5'000);
  close(share, 2, 90'000);
  CHECK(share.suits(at(100)) == Suits::kNo);
  close(share, 1, 90'000);
  CHECK(share.suits(at(100)) == Suits::kYes);
}

TEST_CASE("few contributions, and old contributions, show nothing") {
  ContributionShare share;
  CHECK(share.suits(at(0)) == Suits::kUnknown);
  close(share, 3, kTotal);
  CHECK(share.suits(at(100)) == Suits::kUnknown);
  close(share, 1, kTotal);
  CHECK(share.suits(at(2100)) == Suits::kYes);
  CHECK(share.suits(at(2101)) == Suits::kUnknown);
  ContributionShare slow;
  close(slow, 1, 9'000);
  CHECK(slow.suits(at(100)) == Suits::kUnknown);
  close(slow, 1, 9'000);
  CHECK(slow.suits(at(100)) == Suits::kNo);
}

TEST_CASE(
    "a payload that has not begun, or is small or large, says nothing about the link") {
  ContributionShare share;
  close(share, 4, 50'000);
  close(share, 9, 0);
  close(share, 9, 1, ContributionShare::kLeastBytes - 1);
  close(share, 9, 1, ContributionShare::kMostBytes + 1);
  CHECK(share.suits(at(100)) == Suits::kYes);
}

}  // namespace
}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/uplink.h"

#include "harness/catch.h"

namespace aikido::straggler {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kTotal = 96'000;

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

void close(Uplink& uplink, int times, uint64_t here, uint64_t total = kTotal) {
  for (int i = 0; i < times; ++i) uplink.on_close(here, total, at(100));
}

TEST_CASE("a third of the last contributions at the close is enough") {
  Uplink uplink;
  close(uplink, 4, 31'999);
  CHECK(uplink.suits(at(100)) == Suits::kNo);
  close(uplink, 4, 32'000);
  CHECK(uplink.suits(at(100)) == Suits::kYes);
  // In most of them: what a shaper has saved passes now and then.
  close(uplink, 2, 5'000);
  close(uplink, 2, 90'000);
  CHECK(uplink.suits(at(100)) == Suits::kNo);
  close(uplink, 1, 90'000);
  CHECK(uplink.suits(at(100)) == Suits::kYes);
}

TEST_CASE("few contributions say nothing, nor do old ones") {
  Uplink uplink;
  CHECK(uplink.suits(at(0)) == Suits::kUnknown);
  close(uplink, 3, kTotal);
  CHECK(uplink.suits(at(100)) == Suits::kUnknown);
  close(uplink, 1, kTotal);
  CHECK(uplink.suits(at(2100)) == Suits::kYes);
  CHECK(uplink.suits(at(2101)) == Suits::kUnknown);
  Uplink slow;
  close(slow, 1, 9'000);
  CHECK(slow.suits(at(100)) == Suits::kUnknown);
  close(slow, 1, 9'000);
  CHECK(slow.suits(at(100)) == Suits::kNo);
}

TEST_CASE("one that has not begun, or is small, says nothing of the link") {
  Uplink uplink;
  close(uplink, 4, 50'000);
  close(uplink, 9, 0);
  close(uplink, 9, 1, Uplink::kLeastBytes - 1);
  CHECK(uplink.suits(at(100)) == Suits::kYes);
}

}  // namespace
}  // namespace aikido::straggler

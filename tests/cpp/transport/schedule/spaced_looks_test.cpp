// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/spaced_looks.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::transport;

namespace {

constexpr Duration kApart = std::chrono::milliseconds(5);
constexpr TimePoint kStart{std::chrono::seconds(100)};

}  // namespace

TEST_CASE("a burst of writes causes one look") {
  SpacedLooks looks(3, kApart, kStart);
  int taken = 0;
  for (int i = 0; i < 1000; ++i)
    taken += looks.take(kStart + i * kApart / 1000) ? 1 : 0;
  CHECK(taken == 0);
  for (int i = 0; i < 1000; ++i)
    taken += looks.take(kStart + kApart + i * kApart / 1000) ? 1 : 0;
  CHECK(taken == 1);
}

TEST_CASE("looks end after their number, or when they are not needed any more") {
  SpacedLooks looks(3, kApart, kStart);
  int i = 1;
  for (; i <= 3; ++i) CHECK(looks.take(kStart + i * kApart));
  CHECK_FALSE(looks.take(kStart + i * kApart));
  SpacedLooks ended(3, kApart, kStart);
  CHECK(ended.take(kStart + kApart));
  ended.end();
  CHECK_FALSE(ended.take(kStart + 10 * kApart));
  CHECK_FALSE(SpacedLooks().take(kStart));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/skipped_calls.h"

#include "harness/catch.h"

using namespace aikido;
using engine::SkippedCalls;

namespace {
constexpr auto kNoneKnown = [](uint64_t) { return false; };
}  // namespace

TEST_CASE("a member that has skipped nothing has an empty range") {
  const SkippedCalls skipped;
  CHECK(skipped.through() == 0);
  CHECK_FALSE(skipped.was_dropped(0));
  CHECK_FALSE(skipped.was_dropped(1));
  CHECK_FALSE(skipped.has_unheard());
}

TEST_CASE("skips that follow each other directly are one range") {
  SkippedCalls skipped;
  skipped.skip(3, 6, 2, kNoneKnown);
  CHECK(skipped.from() == 4);
  CHECK(skipped.through() == 6);
  skipped.skip(6, 8, 7, kNoneKnown);
  CHECK(skipped.from() == 4);
  CHECK(skipped.through() == 8);
  skipped.skip(9, 12, 10, kNoneKnown);  // 9 was called
  CHECK(skipped.from() == 10);
  CHECK(skipped.through() == 12);
}

TEST_CASE("dropped results begin with the first of all skips") {
  SkippedCalls skipped;
  skipped.skip(3, 6, 5, kNoneKnown);
  CHECK(skipped.dropped_from() == 5);
  skipped.skip(9, 12, 10, kNoneKnown);
  CHECK(skipped.dropped_from() == 5);
  skipped.skip(12, 12, 2, kNoneKnown);
  CHECK(skipped.dropped_from() == 2);
  CHECK_FALSE(skipped.was_dropped(1));
  CHECK(skipped.was_dropped(2));
  CHECK(skipped.was_dropped(12));
  CHECK_FALSE(skipped.was_dropped(13));
}

TEST_CASE("skipped calls are unheard until their first frame or their end") {
  SkippedCalls skipped;
  skipped.skip(1, 5, 1, [](uint64_t number) { return number == 3; });
  CHECK_FALSE(skipped.is_unheard(1));
  CHECK(skipped.is_unheard(2));
  CHECK_FALSE(skipped.is_unheard(3));  // an operation exists already
  CHECK(skipped.on_heard(2));
  CHECK_FALSE(skipped.on_heard(2));
  CHECK_FALSE(skipped.on_heard(3));
  skipped.forget(4);
  CHECK_FALSE(skipped.is_unheard(4));
  CHECK(skipped.is_unheard(5));
  skipped.forget(5);
  CHECK_FALSE(skipped.has_unheard());
}

TEST_CASE("only the last of many skipped calls are tracked one by one") {
  SkippedCalls skipped;
  const uint64_t last = 3 * SkippedCalls::kMaxUnheard;
  skipped.skip(0, last, 1, kNoneKnown);
  CHECK_FALSE(skipped.is_unheard(last - SkippedCalls::kMaxUnheard));
  CHECK(skipped.is_unheard(last - SkippedCalls::kMaxUnheard + 1));
  CHECK(skipped.is_unheard(last));
  CHECK(skipped.from() == 1);
}

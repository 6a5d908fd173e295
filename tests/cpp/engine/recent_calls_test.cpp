// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/recent_calls.h"

#include "harness/catch.h"

using namespace aikido;
using engine::RecentCalls;

TEST_CASE("the last calls are found by their numbers, for any order of their ends") {
  RecentCalls past;
  CHECK(past.find(1) == nullptr);
  collectives::Call call;
  const uint64_t last = 2 * RecentCalls::kMost + 3;
  for (uint64_t seq = 1; seq <= last; ++seq) {
    call.count = 10 * (seq ^ 1);
    past.note(seq ^ 1, call);
  }
  // The numbers change places in pairs, such as 2 and 3.
  CHECK(past.find(last - RecentCalls::kMost - 1) == nullptr);
  for (uint64_t seq = last - RecentCalls::kMost + 2; seq < last; ++seq) {
    REQUIRE(past.find(seq) != nullptr);
    CHECK(past.find(seq)->count == 10 * seq);
  }
}

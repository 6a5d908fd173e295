// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/past_calls.h"

#include "harness/catch.h"

using namespace aikido;
using engine::PastCalls;

TEST_CASE("the last calls are known by their numbers, in whatever order they ended") {
  PastCalls past;
  CHECK(past.find(1) == nullptr);
  collectives::Call call;
  const uint64_t last = 2 * PastCalls::kMost + 3;
  for (uint64_t seq = 1; seq <= last; ++seq) {
    call.count = 10 * (seq ^ 1);
    past.note(seq ^ 1, call);
  }
  // By twos: the numbers 2, 3 and so on change places.
  CHECK(past.find(last - PastCalls::kMost - 1) == nullptr);
  for (uint64_t seq = last - PastCalls::kMost + 2; seq < last; ++seq) {
    REQUIRE(past.find(seq) != nullptr);
    CHECK(past.find(seq)->count == 10 * seq);
  }
}

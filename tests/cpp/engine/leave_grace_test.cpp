// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/leave_grace.h"

#include "harness/catch.h"

using namespace aikido;
using engine::LeaveGrace;
using std::chrono::milliseconds;

namespace {
constexpr TimePoint kLeft{std::chrono::seconds(1000)};
constexpr TimePoint kEnd = kLeft + LeaveGrace::kLength;
}  // namespace

TEST_CASE("the grace after a leave runs for its length and ends once") {
  LeaveGrace grace;
  CHECK_FALSE(grace.end());
  CHECK_FALSE(grace.is_running(kLeft));
  CHECK_FALSE(grace.take_end(kLeft));
  grace.begin(kLeft);
  CHECK(grace.end() == kEnd);
  CHECK(grace.is_running(kEnd - milliseconds(1)));
  CHECK_FALSE(grace.take_end(kEnd - milliseconds(1)));
  CHECK_FALSE(grace.is_running(kEnd));
  CHECK(grace.take_end(kEnd));
  CHECK_FALSE(grace.take_end(kEnd));
  CHECK_FALSE(grace.end());
}

TEST_CASE("a second leave begins the grace anew") {
  LeaveGrace grace;
  grace.begin(kLeft);
  grace.begin(kLeft + milliseconds(50));
  CHECK(grace.is_running(kEnd + milliseconds(49)));
  CHECK(grace.end() == kEnd + milliseconds(50));
}

TEST_CASE("a paused grace does not run until it is resumed") {
  LeaveGrace grace;
  grace.begin(kLeft);
  const auto paused = grace.pause();
  CHECK_FALSE(grace.is_running(kLeft));
  CHECK_FALSE(grace.take_end(kEnd));
  grace.resume(paused);
  CHECK(grace.is_running(kLeft));
  CHECK(grace.take_end(kEnd));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/posted_work.h"

#include <stdexcept>

#include "harness/catch.h"

using namespace aikido::transport;

TEST_CASE("posted work runs in order, and work that it posts runs later") {
  PostedWork work;
  std::vector<int> ran;
  work.add([&] {
    ran.push_back(1);
    work.add([&] { ran.push_back(3); });
  });
  work.add([&] { ran.push_back(2); });
  CHECK_FALSE(work.is_empty());
  work.run();
  CHECK(ran == std::vector{1, 2});
  CHECK_FALSE(work.is_empty());
  work.run();
  CHECK(ran == std::vector{1, 2, 3});
  CHECK(work.is_empty());
}

TEST_CASE("one wake-up covers all posted work until a turn takes it") {
  PostedWork work;
  CHECK_FALSE(work.needs_wake_up());
  work.add([] {});
  CHECK(work.needs_wake_up());
  work.add([] {});
  CHECK_FALSE(work.needs_wake_up());
  work.run();
  CHECK_FALSE(work.needs_wake_up());
  work.add([] {});
  CHECK(work.needs_wake_up());
}

TEST_CASE("a turn runs a limited amount of posted work") {
  PostedWork work;
  size_t ran = 0;
  for (size_t i = 0; i < PostedWork::kMaxPerTurn + 10; ++i) work.add([&] { ++ran; });
  work.run();
  CHECK(ran == PostedWork::kMaxPerTurn);
  CHECK_FALSE(work.is_empty());
  work.run();
  CHECK(ran == PostedWork::kMaxPerTurn + 10);
}

TEST_CASE("an exception of posted work does not lose the work behind it") {
  PostedWork work;
  int ran = 0;
  work.add([] { throw std::runtime_error("first"); });
  work.add([&] { ++ran; });
  CHECK_THROWS(work.run());
  CHECK_FALSE(work.is_empty());
  work.run();
  CHECK(ran == 1);
}

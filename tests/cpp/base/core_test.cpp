// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/core.h"

#include <sched.h>

#include <thread>

#include "harness/catch.h"

namespace {

cpu_set_t allowed() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof cores, &cores);
  return cores;
}

// What `work` does to the cores of its thread is over when it returns.
template <class Work>
void on_own_thread(Work work) {
  std::thread(work).join();
}

}  // namespace

TEST_CASE("a thread moves to another core and may run on the same ones", "[unit]") {
  cpu_set_t before, after;
  bool could_move = true, has_moved = false;
  on_own_thread([&] {
    before = allowed();
    // The system may move it, too, but not each time in between.
    for (int i = 0; i < 10; ++i) {
      const int core = ::sched_getcpu();
      could_move = aikido::move_to_another_core() && could_move;
      has_moved = has_moved || ::sched_getcpu() != core;
    }
    after = allowed();
  });
  const bool is_one = CPU_COUNT(&before) == 1;
  CHECK(could_move == !is_one);
  CHECK((has_moved || is_one));
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("a thread that may run on one core only stays there", "[unit]") {
  cpu_set_t one, after;
  CPU_ZERO(&one);
  bool is_set = false, could_move = true;
  on_own_thread([&] {
    CPU_SET(::sched_getcpu(), &one);
    is_set = ::sched_setaffinity(0, sizeof one, &one) == 0;
    could_move = aikido::move_to_another_core();
    after = allowed();
  });
  REQUIRE(is_set);
  CHECK_FALSE(could_move);
  CHECK(CPU_EQUAL(&one, &after));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/core.h"

#include <sched.h>

#include <thread>

#include "harness/catch.h"

namespace {

cpu_set_t allowed() {
  cpu_set_t cores;
  REQUIRE(::sched_getaffinity(0, sizeof cores, &cores) == 0);
  return cores;
}

void allow(const cpu_set_t& cores) {
  REQUIRE(::sched_setaffinity(0, sizeof cores, &cores) == 0);
}

// What `work` does to the cores of its thread is over when it returns.
template <class Work>
void on_own_thread(Work work) {
  std::thread(work).join();
}

}  // namespace

TEST_CASE("a thread moves to another core and may run on the same ones", "[unit]") {
  on_own_thread([] {
    const cpu_set_t before = allowed();
    if (CPU_COUNT(&before) == 1) {
      CHECK_FALSE(aikido::move_to_another_core());
      return;
    }
    // The system may move it, too, but not each time in between.
    bool has_moved = false;
    for (int i = 0; i < 10; ++i) {
      const int core = ::sched_getcpu();
      REQUIRE(aikido::move_to_another_core());
      has_moved = has_moved || ::sched_getcpu() != core;
    }
    CHECK(has_moved);
    const cpu_set_t after = allowed();
    CHECK(CPU_EQUAL(&before, &after));
  });
}

TEST_CASE("a thread that may run on one core only stays there", "[unit]") {
  on_own_thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    allow(one);
    CHECK_FALSE(aikido::move_to_another_core());
    const cpu_set_t after = allowed();
    CHECK(CPU_EQUAL(&one, &after));
  });
}

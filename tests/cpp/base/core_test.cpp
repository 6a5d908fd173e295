// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/core.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "harness/catch.h"

using aikido::Duration;

namespace {

cpu_set_t allowed() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof cores, &cores);
  return cores;
}

// Runs `work` on a thread of its own, so that changes of the thread's core affinity end
// with the call.
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
    // The system may move the thread back, but not in every iteration.
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

TEST_CASE("a thread that may only run on one core stays there", "[unit]") {
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

TEST_CASE("a thread avoids the core that it left last, until it comes back") {
  const int num_times = GENERATE(1, 2);
  cpu_set_t before, away, after;
  bool has_left = true;
  on_own_thread([&] {
    before = allowed();
    {
      aikido::OtherCores others;
      for (int i = 0; i < num_times; ++i) has_left = others.leave() && has_left;
      away = allowed();
    }
    after = allowed();
  });
  CHECK(CPU_EQUAL(&before, &after));
  if (CPU_COUNT(&before) == 1) return;
  REQUIRE(has_left);
  CHECK(CPU_COUNT(&away) == CPU_COUNT(&before) - 1);
}

TEST_CASE("a core affinity that other code has set stays") {
  const bool leaves_again = GENERATE(false, true);
  cpu_set_t before, left, after;
  bool has_left = false;
  on_own_thread([&] {
    before = allowed();
    aikido::OtherCores others;
    has_left = others.leave();
    cpu_set_t away = allowed();
    // Pins the thread, like another part of the program, to exactly the core that it
    // has left.
    CPU_XOR(&left, &before, &away);
    if (!has_left || ::sched_setaffinity(0, sizeof left, &left) != 0) return;
    if (leaves_again) others.leave();
    others.come_back();
    after = allowed();
  });
  if (CPU_COUNT(&before) == 1) return;
  REQUIRE(has_left);
  CHECK(CPU_EQUAL(&left, &after));
}

TEST_CASE("the time in which a ready thread has no core is counted") {
  std::atomic<bool> is_over{false};
  std::optional<Duration> first, second;
  Duration on_core{}, total{};
  on_own_thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) return;
    std::vector<std::thread> others;  // on the same core
    for (int i = 0; i < 3; ++i) {
      others.emplace_back([&] {
        while (!is_over) continue;
      });
    }
    const auto used = [] {
      rusage usage{};
      ::getrusage(RUSAGE_THREAD, &usage);
      const auto duration = [](timeval time) {
        return std::chrono::seconds(time.tv_sec) +
               std::chrono::microseconds(time.tv_usec);
      };
      return Duration(duration(usage.ru_utime) + duration(usage.ru_stime));
    };
    const aikido::SystemClock clock;
    const aikido::ReadyThreads ready;
    const auto begin = clock.now();
    const auto used_before = used();
    first = ready.waited();
    while (clock.now() - begin < std::chrono::milliseconds(200)) continue;
    second = ready.waited();
    on_core = used() - used_before;
    total = clock.now() - begin;
    is_over = true;
    for (std::thread& other : others) other.join();
  });
  if (!first) return;  // this system does not count waiting time
  REQUIRE(second);
  const Duration waited = *second - *first;
  CHECK(waited > 0.8 * (total - on_core));
  CHECK(waited < 1.2 * (total - on_core));
}

TEST_CASE("more ready threads than cores are reported as too many") {
  // Some systems always report that the threads do not fit the cores.
  if (!aikido::ReadyThreads().fit_cores()) return;
  const long num_cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (long i = 0; i < num_cores; ++i) {
    threads.emplace_back([&] {
      while (!is_over) continue;
    });
  }
  const aikido::ReadyThreads ready;
  bool have_not_fit = false;
  const aikido::SystemClock clock;
  const auto end = clock.now() + std::chrono::seconds(10);
  while (!have_not_fit && clock.now() < end) have_not_fit = !ready.fit_cores();
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(have_not_fit);
}

TEST_CASE("a thread that may not use all cores reports no idle core") {
  bool is_set = false, have_fit = false;
  on_own_thread([&] {
    cpu_set_t some = allowed();
    CPU_CLR(::sched_getcpu(), &some);
    is_set = ::sched_setaffinity(0, sizeof some, &some) == 0;
    const aikido::ReadyThreads ready;
    for (int i = 0; i < 100; ++i) have_fit = have_fit || ready.fit_cores();
  });
  if (!is_set) return;  // the thread may use one core only
  CHECK_FALSE(have_fit);
}

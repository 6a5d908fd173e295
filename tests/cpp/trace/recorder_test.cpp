// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/recorder.h"

#include <barrier>
#include <thread>

#include "harness/catch.h"
#include "harness/manual_clock.h"

using namespace aikido;
using namespace aikido::testing;
using trace::Recorder;
using trace::Span;

namespace {

Span numbered(uint64_t number) {
  Span span;
  span.number = number;
  return span;
}

}  // namespace

TEST_CASE("steps are traced from the first to the last requested step") {
  ManualClock clock;
  Recorder recorder(16, &clock);
  std::vector<int64_t> traced;
  recorder.arm_steps(2, 4);
  for (int64_t step = 0; step < 8; ++step) {
    recorder.set_step(step);
    CHECK(recorder.step() == step);
    CHECK(recorder.is_armed() == (step >= 2 && step <= 4));
    CHECK(recorder.traced_step() == (recorder.is_armed() ? step : -1));
  }
  recorder.arm_steps(7, 7);  // span that is in progress
  CHECK(recorder.is_armed());
  recorder.disarm();
  CHECK_FALSE(recorder.is_armed());
  recorder.arm();
  recorder.set_step(100);
  CHECK(recorder.is_armed());
}

TEST_CASE("spans of all threads are taken once, each with its thread") {
  ManualClock clock;
  Recorder recorder(16, &clock);
  std::barrier both(2);
  std::thread other([&] {
    for (uint64_t i = 0; i < 3; ++i) recorder.record(numbered(100 + i));
    both.arrive_and_wait();  // so that the two threads have different ids
  });
  for (uint64_t i = 0; i < 20; ++i) recorder.record(numbered(i));
  both.arrive_and_wait();
  other.join();
  const auto taken = recorder.take();
  CHECK(taken.num_dropped == 4);
  REQUIRE(taken.spans.size() == 19);
  std::vector<uint64_t> mine, others;
  const uint8_t here = taken.spans.front().number == 0 ? taken.spans.front().thread
                                                       : taken.spans.back().thread;
  for (const Span& span : taken.spans)
    (span.thread == here ? mine : others).push_back(span.number);
  CHECK(others == std::vector<uint64_t>{100, 101, 102});
  REQUIRE(mine.size() == 16);
  CHECK(mine.back() == 15);
  CHECK(recorder.take().spans.empty());
}

TEST_CASE("two recorders in one thread keep their spans apart") {
  ManualClock clock;
  Recorder first(16, &clock), second(16, &clock);
  for (uint64_t i = 0; i < 3; ++i) {
    first.record(numbered(i));
    second.record(numbered(10 + i));
  }
  CHECK(first.take().spans.size() == 3);
  CHECK(second.take().spans.front().number == 10);
}

TEST_CASE("only a limited number of threads gets memory for spans") {
  ManualClock clock;
  Recorder recorder(4, &clock);
  constexpr size_t kThreads = Recorder::kMaxThreads + 6;
  std::barrier all(static_cast<std::ptrdiff_t>(kThreads));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      recorder.record(numbered(i));
      all.arrive_and_wait();
    });
  }
  for (auto& thread : threads) thread.join();
  const auto taken = recorder.take();
  CHECK(taken.spans.size() == Recorder::kMaxThreads);
  CHECK(taken.num_dropped == 6);
}

TEST_CASE("each name has one number, and different names have different numbers") {
  ManualClock clock;
  Recorder recorder(4, &clock);
  CHECK(recorder.name("forward") == 0);
  CHECK(recorder.name("backward") == 1);
  CHECK(recorder.name("forward") == 0);
  CHECK(recorder.take().names == std::vector<std::string>{"forward", "backward"});
}

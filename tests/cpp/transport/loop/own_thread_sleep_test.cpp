// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/own_thread_sleep.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "harness/catch.h"
#include "transport/loop/descriptors.h"

using namespace aikido;
using namespace aikido::transport;

namespace {

constexpr Duration kLong = std::chrono::seconds(20);

struct Sleeper {
  Sleeper() { descriptors.add(fd.get(), EPOLLIN, nullptr); }
  void cause_event() {
    const uint64_t one = 1;
    REQUIRE(::write(fd.get(), &one, sizeof one) == sizeof one);
  }
  // Returns how long the sleep took.
  Duration sleep(std::optional<Duration> most) {
    const TimePoint before = clock.now();
    sleeper.sleep(most, awake_until);
    return clock.now() - before;
  }
  SystemClock clock;
  Descriptors descriptors;
  OwnThreadSleep sleeper{descriptors.fd()};
  Fd fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<TimePoint> awake_until{TimePoint{}};
};

}  // namespace

TEST_CASE("an event ends a sleep through an open gate only", "[tcp]") {
  Sleeper s;
  s.cause_event();
  CHECK(s.sleep(std::nullopt) < kLong);
  CHECK(s.sleep(kLong) < kLong);
  s.sleeper.set_gate(false);
  const Duration short_time = std::chrono::milliseconds(2);
  CHECK(s.sleep(short_time) >= short_time);
  s.sleeper.set_gate(true);
  CHECK(s.sleep(kLong) < kLong);
}

TEST_CASE("an alarm ends a sleep, and moves its end to an earlier time only", "[tcp]") {
  Sleeper s;
  const TimePoint now = s.clock.now();
  // The thread is awake.
  s.sleeper.set_alarm(now);
  CHECK_FALSE(s.sleeper.until());
  s.sleeper.fall_asleep(now + kLong);
  s.sleeper.set_alarm(now + 2 * kLong);
  CHECK(s.sleeper.until() == now + kLong);
  s.sleeper.set_alarm(now + std::chrono::milliseconds(1));
  CHECK(s.sleeper.until() == now + std::chrono::milliseconds(1));
  CHECK(s.sleep(std::nullopt) < kLong);
  s.sleeper.wake_up();
  CHECK_FALSE(s.sleeper.until());
  // The alarm is off again.
  const Duration short_time = std::chrono::milliseconds(2);
  CHECK(s.sleep(short_time) >= short_time);
}

TEST_CASE("a sleep goes on while a caller is expected to return", "[tcp]") {
  Sleeper s;
  const Duration expected = std::chrono::milliseconds(3);
  s.awake_until = s.clock.now() + expected;
  CHECK(s.sleep(Duration(1)) > expected / 2);
}

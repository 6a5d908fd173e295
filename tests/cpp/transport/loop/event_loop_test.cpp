// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/event_loop.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "harness/catch.h"

using namespace aikido;
using namespace aikido::transport;

namespace {

struct Alarm final : Timed {
  explicit Alarm(EventLoop* l) : loop(l) {}
  void on_time(TimePoint now) override {
    rang_at = now;
    due.reset();
    loop->stop();
  }
  std::optional<TimePoint> next_look() const override { return due; }
  EventLoop* loop;
  std::optional<TimePoint> due, rang_at;
};

struct Flush final : Flushable {
  void flush() override { ++times; }
  int times = 0;
};

}  // namespace

TEST_CASE("posted work runs in order, also work that other work posts") {
  EventLoop loop;
  std::vector<int> seen;
  loop.post([&] {
    seen.push_back(1);
    loop.post([&] {
      seen.push_back(3);
      loop.stop();
    });
  });
  loop.post([&] { seen.push_back(2); });
  loop.run();
  CHECK(seen == std::vector<int>{1, 2, 3});
}

TEST_CASE("work of many threads all runs") {
  EventLoop loop;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i)
        loop.post([&] {
          if (++count == 2000) loop.stop();
        });
    });
  loop.run();
  for (auto& t : threads) t.join();
  CHECK(count == 2000);
}

TEST_CASE("descriptors, timed work and writes come between long runs of posted work") {
  struct Reader final : FdHandler {
    void on_events(uint32_t) override {
      loop->remove(fd.get(), this);
      heard_after = *num_done;
    }
    EventLoop* loop = nullptr;
    const int* num_done = nullptr;
    Fd fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    int heard_after = -1;
  };
  EventLoop loop;
  Reader reader;
  Flush flush;
  int done = 0, flushed_after = -1;
  bool is_in_order = true;
  constexpr int kMuch = 100'000;
  reader.loop = &loop;
  reader.num_done = &done;
  loop.add(reader.fd.get(), EPOLLIN, &reader);
  loop.post([&] {
    loop.request_flush(&flush);
    const uint64_t one = 1;
    CHECK(::write(reader.fd.get(), &one, sizeof one) == sizeof one);
  });
  for (int i = 1; i <= kMuch; ++i)
    loop.post([&, i] {
      is_in_order = is_in_order && ++done == i;
      if (flush.times > 0 && flushed_after < 0) flushed_after = i;
      if (i == kMuch) loop.stop();
    });
  loop.run();
  CHECK(is_in_order);
  CHECK((reader.heard_after > 0 && reader.heard_after < 1000));
  CHECK((flushed_after > 0 && flushed_after < 1000));
}

TEST_CASE("timed work runs when it is due and not before") {
  EventLoop loop;
  Alarm alarm(&loop);
  loop.add_timed(&alarm);
  const TimePoint due = SystemClock().now() + std::chrono::milliseconds(3);
  alarm.due = due;
  loop.run();
  REQUIRE(alarm.rang_at.has_value());
  CHECK(*alarm.rang_at >= due);
  loop.remove_timed(&alarm);
}

TEST_CASE("time stands still during a turn, and goes on in the next") {
  EventLoop loop;
  TimePoint first, again, later;
  loop.post([&] {
    first = loop.now();
    const TimePoint begin = SystemClock().now();
    while (SystemClock().now() == begin) {
    }
    again = loop.now();
    loop.post([&] {
      later = loop.now();
      loop.stop();
    });
  });
  loop.run();
  CHECK(first == again);
  CHECK(later > first);
}

TEST_CASE(
    "a time before an event counts as read when all descriptors have been checked") {
  EventLoop loop;
  const Fd fd(::eventfd(0, EFD_NONBLOCK));
  struct Reader final : FdHandler, Timed {
    void on_events(uint32_t) override {
      while_reading = loop->read_before();
      loop->modify(fd, 0, this);
      due = loop->now();
    }
    void on_time(TimePoint) override {
      behind_reading = loop->read_before();
      due.reset();
      loop->stop();
    }
    std::optional<TimePoint> next_look() const override { return due; }
    EventLoop* loop = nullptr;
    int fd = -1;
    std::optional<TimePoint> due;
    TimePoint while_reading, behind_reading;
  } reader;
  reader.loop = &loop;
  reader.fd = fd.get();
  loop.add(fd.get(), EPOLLIN, &reader);
  loop.add_timed(&reader);
  const TimePoint sent_at = SystemClock().now();
  REQUIRE(::eventfd_write(fd.get(), 1) == 0);
  loop.run();
  // Another descriptor might have older data.
  CHECK(reader.while_reading <= sent_at);
  CHECK(reader.behind_reading > sent_at);
  loop.remove_timed(&reader);
  loop.remove(fd.get(), &reader);
}

TEST_CASE("flushes run once, at the end of the turn, and can be cancelled") {
  EventLoop loop;
  Flush wanted, unwanted;
  loop.post([&] {
    loop.request_flush(&unwanted);
    loop.request_flush(&wanted);
    loop.forget_flush(&unwanted);
    CHECK(wanted.times == 0);
    loop.post([&] { loop.stop(); });
  });
  loop.run();
  CHECK(wanted.times == 1);
  CHECK(unwanted.times == 0);
}

TEST_CASE("a removed handler gets no more events, not even in the same turn") {
  EventLoop loop;
  const Fd a(::eventfd(1, 0)), b(::eventfd(1, 0));
  struct Pair final : FdHandler {
    void on_events(uint32_t) override {
      ++times;
      loop->remove(fd, this);
      loop->remove(other_fd, other);
      loop->stop();
    }
    EventLoop* loop = nullptr;
    int fd = -1, other_fd = -1, times = 0;
    Pair* other = nullptr;
  } x, y;
  x.loop = y.loop = &loop;
  x.fd = y.other_fd = a.get();
  y.fd = x.other_fd = b.get();
  x.other = &y;
  y.other = &x;
  loop.add(a.get(), EPOLLIN, &x);
  loop.add(b.get(), EPOLLIN, &y);
  loop.run();
  CHECK(x.times + y.times == 1);
}

TEST_CASE("work that throws does not stop the work behind it") {
  EventLoop loop;
  Flush flush;
  bool ran = false;
  loop.post([&] {
    loop.request_flush(&flush);
    throw std::runtime_error("on purpose");
  });
  loop.post([&] {
    ran = true;
    loop.post([&] { loop.stop(); });
  });
  CHECK_THROWS_AS(loop.run(), std::runtime_error);
  loop.run();
  CHECK(ran);
  CHECK(flush.times == 1);
}

namespace {

// A loop with its own thread.
struct Running {
  ~Running() {
    loop.stop();
    thread.join();
  }
  EventLoop loop;
  std::thread thread{[this] { loop.run(); }};
};

constexpr TimePoint kNever = TimePoint::max();

}  // namespace

TEST_CASE("a waiting thread runs the turns, while the loop's own thread sleeps",
          "[tcp]") {
  for (const int spin_us : {0, 1000}) {
    Running running;
    EventLoop& loop = running.loop;
    std::vector<std::thread::id> ran_on;
    std::thread other;
    const auto post_one = [&] {
      loop.post([&] { ran_on.push_back(std::this_thread::get_id()); });
    };
    const auto is_over = [&] {
      // The second task is posted while this thread goes to sleep.
      if (!other.joinable()) other = std::thread(post_one);
      if (ran_on.size() == 1) post_one();
      return ran_on.size() >= 2;
    };
    CHECK(loop.help(is_over, kNever, std::chrono::microseconds(spin_us)));
    other.join();
    CHECK(ran_on == std::vector(2, std::this_thread::get_id()));
    CHECK_FALSE(EventLoop::is_in_turn());
    std::promise<std::thread::id> after;
    loop.post([&] { after.set_value(std::this_thread::get_id()); });
    CHECK(after.get_future().get() == running.thread.get_id());
  }
}

namespace {

// Number of times that a thread of this process has gone to sleep.
long num_sleeps(pid_t thread) {
  std::ifstream status(concat("/proc/self/task/", thread, "/status"));
  const std::string wanted = "voluntary_ctxt_switches:";
  for (std::string word; status >> word;) {
    if (word != wanted) continue;
    long number = 0;
    status >> number;
    return number;
  }
  return -1;
}

}  // namespace

TEST_CASE("events for a waiting thread do not wake the loop's own thread", "[tcp]") {
  for (const int spin_us : {0, 1000}) {
    Running running;
    EventLoop& loop = running.loop;
    std::promise<pid_t> told;
    loop.post([&] { told.set_value(::gettid()); });
    const pid_t own = told.get_future().get();
    constexpr int kNumEvents = 300;
    int num_seen = 0;
    std::thread other;
    long before = -1;
    const auto is_over = [&] {
      if (!other.joinable()) {
        before = num_sleeps(own);
        other = std::thread([&] {
          for (int i = 0; i < kNumEvents; ++i) {
            std::promise<void> seen;
            loop.post([&] {
              ++num_seen;
              seen.set_value();
            });
            seen.get_future().wait();
          }
        });
      }
      return num_seen == kNumEvents;
    };
    CHECK(loop.help(is_over, kNever, std::chrono::microseconds(spin_us)));
    other.join();
    // One of the tasks shuts the gate.
    CHECK(before >= 0);
    CHECK(num_sleeps(own) - before < kNumEvents / 10);
  }
}

namespace {

// Records which thread has put it to rest.
struct Rester final : Polled {
  bool poll() override { return false; }
  bool rest() override {
    ++(std::this_thread::get_id() == own ? by_own : by_callers);
    return true;
  }
  std::thread::id own;
  std::atomic<int> by_own = 0, by_callers = 0;
};

}  // namespace

TEST_CASE("a loop stays awake for callers that come back, and rests if none does",
          "[tcp]") {
  Running running;
  EventLoop& loop = running.loop;
  Rester rester;
  rester.own = running.thread.get_id();
  loop.between_turns([&] { loop.add_polled(&rester); });
  const SystemClock clock;
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  const auto help = [&](Duration spin) {
    bool is_over = false;
    loop.enqueue([&] { is_over = true; });
    loop.help([&] { return is_over; }, kNever, spin);
  };
  bool came_back = false;
  for (int i = 0; i < 100 && !came_back; ++i) {
    pause();  // until the loop's own thread sleeps
    const int before = rester.by_callers;
    const TimePoint begin = clock.now();
    help(std::chrono::milliseconds(1));
    if (rester.by_callers == before)
      continue;  // the loop's own thread did not sleep yet
    const int between = rester.by_callers, own = rester.by_own;
    help(std::chrono::milliseconds(1));
    if (clock.now() - begin >= std::chrono::milliseconds(1)) continue;
    came_back = true;
    CHECK(rester.by_callers == between);
    const TimePoint deadline = clock.now() + std::chrono::seconds(10);
    while (rester.by_own == own && clock.now() < deadline) pause();
    CHECK(rester.by_own > own);
  }
  REQUIRE(came_back);
  loop.between_turns([&] { loop.remove_polled(&rester); });
}

TEST_CASE("a waiting thread polls and yields before it sleeps") {
  EventLoop loop;
  int num_asked = 0;
  const auto is_over = [&] { return ++num_asked > 2; };
  // A yield may be slow, so the wait behind it sleeps.
  CHECK(loop.help(is_over, loop.now() + std::chrono::seconds(10), {}));
  CHECK(num_asked == 3);
}

// The kernel does not move the thread there, because the other core has more threads. A
// thread stays on a core that a computing thread of another process takes again and
// again. If that is so during the whole wait, the test shows nothing.
TEST_CASE("a spinning thread that shares its core moves to another core") {
  constexpr Duration kTurn = std::chrono::microseconds(10);  // of a thread of this test
  constexpr int kEnough = 2 * SharedCore::kMostHandedOver;
  cpu_set_t all;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  if (CPU_COUNT(&all) == 1) return;  // there is no other core
  const auto run_on = [](const std::vector<int>& cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) CPU_SET(core, &set);
    return ::sched_setaffinity(0, sizeof set, &set) == 0;
  };
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE && cores.size() < 2; ++core)
    if (CPU_ISSET(core, &all)) cores.push_back(core);
  std::atomic<bool> is_over{false};
  std::atomic<int> num_there{0};
  const auto hand_over_on = [&](int core) {
    const bool is_there = run_on({core});
    ++num_there;
    while (is_there && !is_over) {
      const TimePoint until = SystemClock().now() + kTurn;
      while (SystemClock().now() < until) continue;
      ::sched_yield();
    }
  };
  std::vector<std::thread> others;
  for (const int core : {cores[0], cores[1], cores[1], cores[1], cores[1]})
    others.emplace_back(hand_over_on, core);
  bool has_moved = false, could_move = false;
  std::thread spins([&] {
    while (num_there < 5) ::sched_yield();
    EventLoop loop;
    if (!run_on({cores[0]}) || !run_on(cores)) return;
    TimePoint last_at = SystemClock().now();
    int num_handed_over = 0;  // yields in a row
    const auto has_come = [&] {
      const TimePoint now = SystemClock().now();
      const Duration since_last = now - last_at;
      const bool handed_over =
          since_last >= kTurn && since_last < TwoPhaseWait::kSlowYield;
      num_handed_over = handed_over ? num_handed_over + 1 : 0;
      could_move = could_move || num_handed_over >= kEnough;
      last_at = now;
      return has_moved = ::sched_getcpu() == cores[1];
    };
    loop.help(has_come, loop.now() + std::chrono::seconds(5), std::chrono::seconds(5));
  });
  spins.join();
  is_over = true;
  for (std::thread& other : others) other.join();
  CHECK((has_moved || !could_move));
}

// A busy thread shares the core: it rings the wake-up flag and yields, while another
// core is idle.
TEST_CASE("a long wait on a crowded core avoids that core until it ends") {
  struct Busy final : Polled {
    // Often enough that the wait does not sleep.
    bool poll() override { return ++num_looks % 50 == 0; }
    bool rest() override { return true; }
    int num_looks = 0;
  };
  const auto cores_of_this = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    ::sched_getaffinity(0, sizeof set, &set);
    return set;
  };
  const cpu_set_t all = cores_of_this();
  if (CPU_COUNT(&all) == 1) return;  // there is no other core
  const auto run_on = [](const cpu_set_t& cores) {
    return ::sched_setaffinity(0, sizeof cores, &cores) == 0;
  };
  cpu_set_t shared;
  CPU_ZERO(&shared);
  std::atomic<bool> has_begun{false}, is_there{false}, is_over{false};
  EventLoop loop;
  std::thread other([&] {
    CPU_SET(::sched_getcpu(), &shared);
    is_there = run_on(shared);
    has_begun = true;
    const uint64_t bell = 1;
    while (is_there && !is_over) {
      const TimePoint until = SystemClock().now() + std::chrono::microseconds(50);
      while (SystemClock().now() < until) continue;
      is_there = ::write(loop.doorbell(), &bell, sizeof bell) == sizeof bell;
      ::sched_yield();
    }
  });
  bool is_away = false, can_return = true;
  cpu_set_t after = all;
  // Total time in which each thread could have had a core, and the waiting thread did
  // not leave. If there is no such time, or the system does not count it, the test
  // shows nothing.
  constexpr Duration kEnough = std::chrono::seconds(1);
  Duration could_leave{};
  std::thread waits([&] {
    while (!has_begun) ::sched_yield();
    const ReadyThreads ready;
    const bool does_count = ready.waited().has_value();
    Busy busy;
    loop.add_polled(&busy);
    TimePoint last_at = SystemClock().now();
    const auto has_left = [&] {
      const cpu_set_t now = cores_of_this();
      is_away = CPU_COUNT(&now) == CPU_COUNT(&all) - 1;
      const TimePoint here_at = SystemClock().now();
      // The kernel may have moved the thread to the idle core.
      const bool has_moved = !is_away && !CPU_ISSET(::sched_getcpu(), &shared);
      if (has_moved) can_return = run_on(shared) && run_on(all);
      if (!has_moved && does_count && ready.fit_cores())
        could_leave += std::min(here_at - last_at, CrowdedWait::kBetween);
      last_at = here_at;
      return is_away || could_leave > kEnough;
    };
    loop.help(has_left, loop.now() + std::chrono::seconds(10), {});
    after = cores_of_this();
    loop.remove_polled(&busy);
  });
  waits.join();
  is_over = true;
  other.join();
  CHECK((is_there && can_return));
  CHECK(CPU_EQUAL(&after, &all));
  CHECK((is_away || could_leave <= kEnough));
}

TEST_CASE("a wait without an event sleeps until its deadline") {
  EventLoop loop;
  int num_asked = 0;
  const auto is_over = [&] {
    ++num_asked;
    return false;
  };
  const TimePoint deadline = loop.now() + std::chrono::milliseconds(100);
  CHECK(loop.help(is_over, deadline, {}));
  CHECK(SystemClock().now() >= deadline);
  CHECK(num_asked <= TwoPhaseWait::kMostLooks + 4);
}

TEST_CASE("a call is accepted before its received data is read") {
  struct Reader final : Polled {
    bool poll() override {
      if (is_called) has_read_for_call = true;
      ++num_reads;
      return false;
    }
    bool rest() override { return true; }
    bool is_called = false, has_read_for_call = false;
    int num_reads = 0;
  };
  EventLoop loop;
  Reader reader;
  loop.add_polled(&reader);
  loop.enqueue([&] {
    CHECK(reader.num_reads == 0);
    reader.is_called = true;
  });
  loop.drive();
  CHECK(reader.num_reads == 1);
  CHECK(reader.has_read_for_call);
  loop.remove_polled(&reader);
}

TEST_CASE("only one thread helps at a time, and for no longer than it wants", "[tcp]") {
  Running running;
  EventLoop& loop = running.loop;
  bool is_over = false, second = true;
  std::thread other;
  const auto ask = [&] {
    if (!other.joinable())
      other = std::thread([&] {
        second = loop.help([] { return false; }, kNever, Duration::zero());
        loop.post([&] { is_over = true; });
      });
    return is_over;
  };
  CHECK(loop.help(ask, kNever, Duration::zero()));
  other.join();
  CHECK_FALSE(second);
  const TimePoint deadline = SystemClock().now() + std::chrono::milliseconds(3);
  CHECK(loop.help([] { return false; }, deadline, Duration::zero()));
  CHECK(SystemClock().now() >= deadline);
}

TEST_CASE("the loop's own thread continues the work that a caller began", "[tcp]") {
  EventLoop loop;
  Alarm alarm(&loop);
  loop.add_timed(&alarm);
  std::thread own([&] { loop.run(); });
  // By now the loop sleeps without a time limit.
  std::promise<void> runs;
  loop.post([&] { runs.set_value(); });
  runs.get_future().wait();
  const TimePoint due = SystemClock().now() + std::chrono::milliseconds(20);
  const auto work = [&] { alarm.due = due; };
  SECTION("posted work") {
    loop.enqueue(work);
    loop.drive();
  }
  SECTION("work that is done at once") {
    while (!loop.drive_with(work)) std::this_thread::yield();
  }
  own.join();
  REQUIRE(alarm.rang_at.has_value());
  CHECK(*alarm.rang_at >= due);
  loop.remove_timed(&alarm);
}

TEST_CASE("consecutive turns do the due work, but seldom ask for due work") {
  struct Due final : Timed {
    explicit Due(EventLoop* l) : loop(l) {}
    void on_time(TimePoint now) override {
      rang_at = now;
      due = TimePoint::max();
    }
    std::optional<TimePoint> next_look() const override {
      is_often = is_often || loop->now() < asked_at + EventLoop::kMostLate;
      asked_at = loop->now();
      return due;
    }
    EventLoop* loop;
    TimePoint due = TimePoint::max(), rang_at = TimePoint::max();
    mutable TimePoint asked_at{};
    mutable bool is_often = false;
  };
  EventLoop loop;
  Due timed(&loop);
  loop.add_timed(&timed);
  const auto turn = [&] { CHECK(loop.drive_with([] {})); };
  for (int i = 1; i <= 20; ++i) {
    timed.rang_at = TimePoint::max();
    timed.due = loop.now() + i * std::chrono::microseconds(20);
    const TimePoint due = timed.due;
    TimePoint before = loop.now();
    while (timed.rang_at == TimePoint::max() &&
           before < due + std::chrono::seconds(10)) {
      before = loop.now();
      turn();
    }
    CHECK(timed.rang_at >= due);
    // This alarm may be late for any reason, but the alarm before it was too early.
    CHECK(before < due + EventLoop::kMostLate);
  }
  CHECK_FALSE(timed.is_often);
  loop.remove_timed(&timed);
}

TEST_CASE("a caller that leaves a loop at rest has done the due work", "[tcp]") {
  struct Due final : Timed {
    void on_time(TimePoint) override {
      due.reset();
      ++(std::this_thread::get_id() == own ? by_own : by_callers);
    }
    std::optional<TimePoint> next_look() const override { return due; }
    std::thread::id own;
    std::optional<TimePoint> due;
    int by_own = 0, by_callers = 0;
  };
  Running running;
  EventLoop& loop = running.loop;
  Due timed;
  timed.own = running.thread.get_id();
  loop.between_turns([&] { loop.add_timed(&timed); });
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it sleeps again
    // The turn of the second task requests nothing by itself.
    for (int turn = 0; turn < 2; ++turn)
      loop.drive_with([&] { timed.due = loop.now(); });
  }
  loop.between_turns([&] {
    loop.remove_timed(&timed);
    CHECK(timed.by_callers > 60);
    CHECK(timed.by_own < 10);
  });
}

TEST_CASE("a caller does work at once, in a turn") {
  EventLoop loop;
  Flush flush;
  bool was_in_turn = false;
  CHECK(loop.drive_with([&] {
    was_in_turn = EventLoop::is_in_turn();
    loop.request_flush(&flush);
  }));
  CHECK(was_in_turn);
  CHECK_FALSE(EventLoop::is_in_turn());
  CHECK(flush.times == 1);
}

TEST_CASE("a caller does not do work at once that must wait") {
  EventLoop loop;
  std::vector<int> seen;
  SECTION("for work that was posted before") {
    loop.enqueue([&] { seen.push_back(1); });
    CHECK_FALSE(loop.drive_with([&] { seen.push_back(2); }));
    CHECK(seen.empty());
    loop.drive();
    CHECK(loop.drive_with([&] { seen.push_back(2); }));
    CHECK(seen == std::vector<int>{1, 2});
  }
  SECTION("for the own turn") {
    bool inner = true;
    CHECK(
        loop.drive_with([&] { inner = loop.drive_with([&] { seen.push_back(1); }); }));
    CHECK_FALSE(inner);
    CHECK(seen.empty());
  }
  SECTION("for the turn of another thread") {
    bool other = true;
    loop.between_turns([&] {
      std::thread([&] { other = loop.drive_with([&] { seen.push_back(1); }); }).join();
    });
    CHECK_FALSE(other);
    CHECK(seen.empty());
  }
}

TEST_CASE("a leaving caller sets an alarm and does not wake the loop's own thread",
          "[tcp]") {
  EventLoop loop;
  Alarm alarm(&loop);
  loop.add_timed(&alarm);
  std::thread own([&] { loop.run(); });
  std::promise<pid_t> told;
  loop.post([&] { told.set_value(::gettid()); });
  const pid_t tid = told.get_future().get();
  const SystemClock clock;
  const auto leave = [&](TimePoint due) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it sleeps again
    loop.enqueue([&, due] { alarm.due = due; });
    loop.drive();
  };
  leave(clock.now() + std::chrono::seconds(100));
  const long before = num_sleeps(tid);
  // Each time is earlier than the time that the loop's thread sleeps for.
  for (int i = 0; i < 20; ++i) leave(clock.now() + std::chrono::seconds(90 - i));
  CHECK(before >= 0);
  CHECK(num_sleeps(tid) - before < 10);
  const TimePoint due = clock.now() + std::chrono::milliseconds(20);
  leave(due);
  own.join();
  REQUIRE(alarm.rang_at.has_value());
  CHECK(*alarm.rang_at >= due);
  CHECK(*alarm.rang_at < due + std::chrono::seconds(60));
  loop.remove_timed(&alarm);
}

TEST_CASE("no thread is in a turn between turns", "[tcp]") {
  Running running;
  int num_inside = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        running.loop.enqueue([&] { ++num_inside; });
        running.loop.drive();
        running.loop.between_turns([&] { ++num_inside; });
      }
    });
  for (auto& t : threads) t.join();
  std::promise<int> seen;
  running.loop.post([&] { seen.set_value(num_inside); });
  CHECK(seen.get_future().get() == 1600);
}

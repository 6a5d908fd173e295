// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <stdexcept>
#include <thread>

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

TEST_CASE("posted work runs in order, also what work posts") {
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

TEST_CASE("descriptors, time and writes come between much posted work") {
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

TEST_CASE("flushes come once, at the end of the turn, and can be forgotten") {
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

TEST_CASE("a handler that was removed hears nothing more, not even in this turn") {
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

TEST_CASE("work that throws leaves the rest to be done") {
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

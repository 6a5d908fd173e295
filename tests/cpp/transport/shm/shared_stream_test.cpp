// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/shared_stream.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <thread>

#include "harness/catch.h"
#include "harness/recording_handler.h"
#include "harness/shared_pair.h"
#include "transport/local_socket.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// One end of a stream, with a loop on a thread of its own. Counts received bytes.
struct Side final : StreamHandler {
  void on_readable() override {
    while (true) {
      std::vector<std::byte> part(1 << 16);
      const iovec into{part.data(), part.size()};
      auto n = stream->read({&into, 1}, Caching::kKept);
      if (!n) {
        why = n.status();
        if (put < data.size()) return;  // it is notified again
        stream->end();
        return loop.stop();
      }
      got.insert(got.end(), part.begin(), part.begin() + static_cast<ptrdiff_t>(*n));
      num_got.store(got.size());
      if (*n < part.size()) return;
    }
  }
  void on_writable() override { write_on(); }
  transport::WakePolicy wake_policy() const override { return need_now; }
  void write_on() {
    while (put < data.size()) {
      const iovec from{const_cast<std::byte*>(data.data()) + put, data.size() - put};
      auto n = stream->write({&from, 1});
      if (!n || *n == 0) break;
      put += *n;
    }
    stream->push(urgency);
    stream->wait_for_room(put < data.size());
    if (put == data.size() && ends) stream->end_sending();
  }
  void run() {
    stream->start(this);
    loop.post([this] { write_on(); });
    thread = std::thread([this] { loop.run(); });
  }

  EventLoop loop;
  std::unique_ptr<SharedStream> stream;
  std::vector<std::byte> data, got;
  std::atomic<size_t> num_got = 0;
  size_t put = 0;
  bool ends = true;
  transport::Urgency urgency = transport::Urgency::kServed;
  transport::WakePolicy need_now = transport::WakePolicy::kNow;
  Status why;
  std::thread thread;
};

struct Pair {
  Pair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    auto [made, opened] = make_shared_pair(4096);
    a.stream = std::make_unique<SharedStream>(&a.loop, Fd(fds[0]), std::move(made));
    b.stream = std::make_unique<SharedStream>(&b.loop, Fd(fds[1]), std::move(opened));
  }
  // True if `b` receives that many bytes within the time.
  bool comes(size_t bytes, milliseconds within) const {
    const SystemClock clock;
    const TimePoint deadline = clock.now() + within;
    while (b.num_got.load() < bytes && clock.now() < deadline)
      std::this_thread::yield();
    return b.num_got.load() >= bytes;
  }
  // Ends both sides. Requires: both run and have not ended.
  void end() {
    a.loop.post([this] { a.stream->end_sending(); });
    b.thread.join();
    b.stream.reset();  // ends the other side
    a.thread.join();
  }
  Side a, b;
};

}  // namespace

TEST_CASE("two loops exchange megabytes both ways, and wake each other up", "[tcp]") {
  Pair two;
  two.a.data = pattern(5'000'000, 1);
  two.b.data = pattern(3'000'000, 2);
  two.a.run();
  two.b.run();
  two.a.thread.join();
  two.b.thread.join();
  CHECK((two.a.got == two.b.data && two.b.got == two.a.data));
  CHECK(two.a.why.code() == Code::kPeerLost);
  CHECK(two.a.why.message().empty());
}

TEST_CASE("an idle pair sleeps, and a byte wakes it up", "[tcp]") {
  Pair two;
  two.a.ends = two.b.ends = false;
  two.a.run();
  two.b.run();
  const SystemClock clock;
  for (int i = 1; i <= 100; ++i) {
    // Passed by value: the sign that the bytes were read goes through memory that is
    // mapped twice. The thread sanitizer cannot see that.
    two.a.loop.post([&two, size = static_cast<size_t>(i)] {
      two.a.data.resize(size);
      two.a.write_on();
    });
    // Only the wake-up flag wakes the other loop.
    const TimePoint deadline = clock.now() + seconds(10);
    while (two.b.num_got.load() < static_cast<size_t>(i) && clock.now() < deadline)
      std::this_thread::yield();
    REQUIRE(two.b.num_got.load() == static_cast<size_t>(i));
  }
  two.end();
  CHECK(two.b.got.size() == 100);
}

TEST_CASE("data without urgency waits until the reader looks, or urgent data comes",
          "[tcp]") {
  Pair two;
  two.a.ends = two.b.ends = false;
  two.b.need_now = transport::WakePolicy::kNews;
  two.a.urgency = transport::Urgency::kNone;
  two.a.run();
  two.b.run();
  const auto give = [&](size_t bytes, transport::Urgency urgency) {
    std::promise<void> given;
    two.a.loop.post([&, bytes, urgency] {
      two.a.urgency = urgency;
      two.a.data.resize(bytes);
      two.a.write_on();
    });
    two.a.loop.post(
        [&] { given.set_value(); });  // behind the wake-up of the turn before
    two.a.loop.post([] {});
    given.get_future().wait();
  };
  std::this_thread::sleep_for(milliseconds(50));  // both sleep
  give(1, transport::Urgency::kNone);
  CHECK_FALSE(two.comes(1, milliseconds(50)));
  two.b.loop.post([] {});
  CHECK(two.comes(1, seconds(10)));
  std::this_thread::sleep_for(milliseconds(50));
  give(2, transport::Urgency::kNone);
  give(3, transport::Urgency::kAwaited);
  CHECK(two.comes(3, seconds(10)));
  two.end();
}

TEST_CASE("an immediate push wakes the peer while our turn goes on", "[tcp]") {
  Pair two;
  two.a.ends = two.b.ends = false;
  two.a.run();
  two.b.run();
  std::this_thread::sleep_for(milliseconds(50));  // both sleep
  std::promise<bool> is_seen;
  two.a.loop.post([&] {
    const std::byte data{};
    const iovec from{const_cast<std::byte*>(&data), 1};
    auto n = two.a.stream->write({&from, 1});
    two.a.stream->push_at_once(transport::Urgency::kServed);
    is_seen.set_value(n && *n == 1 && two.comes(1, seconds(10)));
  });
  CHECK(is_seen.get_future().get());
  two.end();
}

TEST_CASE("written bytes are read after the writer has ended", "[tcp]") {
  Pair two;
  two.a.ends = two.b.ends = false;
  two.a.data = pattern(4000);
  two.a.stream->start(&two.a);
  two.a.write_on();
  CHECK(two.a.stream->is_drained());
  two.a.stream.reset();  // the socket ends, as if the process had ended
  two.b.run();
  two.b.thread.join();
  CHECK((two.b.got == two.a.data));
  CHECK(two.b.why.code() == Code::kPeerLost);
  const iovec from{two.a.data.data(), 1};
  CHECK_FALSE(two.b.stream->write({&from, 1}).is_ok());
}

TEST_CASE("a peer is woken by its wake-up flag, or by bytes until it has sent one") {
  const bool gives = GENERATE(true, false);
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  const Fd peer(fds[1]);
  auto [made, opened] = make_shared_pair(4096);
  RingReader sleeper = opened.reader();
  Side side;
  side.ends = false;
  side.stream = std::make_unique<SharedStream>(&side.loop, Fd(fds[0]), std::move(made));
  const Fd bell(::eventfd(0, EFD_NONBLOCK));
  const std::byte first{};
  if (gives) REQUIRE(send_with(peer, {&first, 1}, bell.get()));
  side.stream->start(&side);
  const auto turn = [&] {
    side.loop.post([&] { side.loop.stop(); });
    side.loop.run();
  };
  turn();  // receives the wake-up flag of the peer

  std::array<std::byte, 8> bytes;
  Fd passed;
  REQUIRE(receive_with(peer, bytes, passed) == 1);
  CHECK(Doorbell(std::move(passed)).is_there());
  REQUIRE(sleeper.rest(WakePolicy::kNow));
  side.loop.post([&] {
    side.data = pattern(100);
    side.write_on();
  });
  turn();
  uint64_t times = 0;
  CHECK((::read(bell.get(), &times, sizeof times) == sizeof times) == gives);
  CHECK(times == (gives ? 1u : 0u));
  CHECK(receive_with(peer, bytes, passed) == (gives ? -1 : 1));
  side.stream->end();
}

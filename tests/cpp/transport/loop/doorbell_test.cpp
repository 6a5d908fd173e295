// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/doorbell.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "harness/catch.h"
#include "transport/loop/event_loop.h"

using namespace aikido;
using namespace aikido::transport;

namespace {

// Runs turns of a loop until the loop is woken from its rest. The first turn belongs to
// an earlier wake-up.
class Awaited final : public Polled {
 public:
  explicit Awaited(EventLoop* loop) : loop_(loop) {
    loop->add_polled(this);
    loop->post([] {});
  }
  ~Awaited() override { loop_->remove_polled(this); }
  bool poll() override {
    had_turn_ = true;
    if (rests_) loop_->stop();
    return false;
  }
  bool rest() override {
    if (had_turn_) rests_ = true;
    return true;
  }
  bool rests() const { return rests_; }

 private:
  EventLoop* loop_;
  bool had_turn_ = false;
  std::atomic<bool> rests_ = false;
};

}  // namespace

TEST_CASE("a wake-up flag wakes its loop, again and again") {
  EventLoop loop;
  Doorbell bell(Fd(::dup(loop.doorbell())));
  REQUIRE(bell.is_there());
  for (int i = 0; i < 3; ++i) {
    Awaited awaited(&loop);
    std::thread other([&] {
      while (!awaited.rests()) std::this_thread::yield();
      CHECK(bell.ring());
    });
    loop.run();
    other.join();
  }
}

TEST_CASE("a wake-up flag outlives its loop") {
  Doorbell bell;
  CHECK_FALSE(bell.is_there());
  {
    const EventLoop loop;
    bell = Doorbell(Fd(::dup(loop.doorbell())));
  }
  CHECK(bell.ring());
}

TEST_CASE("a loop goes on, whatever others do with its wake-up flag") {
  EventLoop loop;
  const uint64_t most = UINT64_MAX - 1;
  REQUIRE(::write(loop.doorbell(), &most, sizeof most) == sizeof most);
  Doorbell bell(Fd(::dup(loop.doorbell())));
  CHECK_FALSE(bell.ring());  // so that the next attempt uses another way
  bool did = false;
  std::thread own([&] { loop.run(); });
  loop.post([&] { did = true; });
  loop.stop();
  own.join();
  CHECK(did);
}

TEST_CASE("a descriptor that could block its writer is no wake-up flag") {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe2(pipe.data(), O_NONBLOCK) == 0);
  const Fd from(pipe[0]);
  CHECK_FALSE(Doorbell(Fd(pipe[1])).is_there());
  CHECK_FALSE(Doorbell(Fd(::eventfd(0, 0))).is_there());
  CHECK_FALSE(Doorbell(Fd(::open("/dev/null", O_WRONLY | O_NONBLOCK))).is_there());
  CHECK_FALSE(Doorbell(Fd()).is_there());
  CHECK(Doorbell(Fd(::eventfd(0, EFD_NONBLOCK))).is_there());
}

TEST_CASE("no descriptor is spent on a wake-up flag if few are left") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  Fd fd(::eventfd(0, EFD_NONBLOCK));
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(fd.get()) * 2;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  const Doorbell none(std::move(fd));
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK_FALSE(none.is_there());
}

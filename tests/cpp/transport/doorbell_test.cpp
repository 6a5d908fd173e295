// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/doorbell.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "harness/catch.h"
#include "transport/event_loop.h"

using namespace aikido;
using namespace aikido::transport;

namespace {

// Runs turns of a loop at rest; done once something has woken it up.
class Awaited final : public Polled {
 public:
  explicit Awaited(EventLoop* loop) : loop_(loop) { loop->add_polled(this); }
  ~Awaited() override { loop_->remove_polled(this); }
  bool poll() override {
    if (rests_) loop_->stop();
    return false;
  }
  bool rest() override {
    rests_ = true;
    return true;
  }
  bool rests() const { return rests_; }

 private:
  EventLoop* loop_;
  std::atomic<bool> rests_ = false;
};

}  // namespace

TEST_CASE("a doorbell wakes up the loop it is of, again and again") {
  EventLoop loop;
  Doorbell bell(Fd(::dup(loop.doorbell())));
  REQUIRE(bell.is_there());
  for (int i = 0; i < 3; ++i) {
    Awaited awaited(&loop);
    std::thread other([&] {
      while (!awaited.rests()) std::this_thread::yield();
      bell.ring();
    });
    loop.run();
    other.join();
  }
}

TEST_CASE("a doorbell outlives its loop") {
  Doorbell bell;
  CHECK_FALSE(bell.is_there());
  {
    const EventLoop loop;
    bell = Doorbell(Fd(::dup(loop.doorbell())));
  }
  bell.ring();
}

TEST_CASE("what could make its ringer wait is no doorbell") {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe2(pipe.data(), O_NONBLOCK) == 0);
  const Fd from(pipe[0]);
  CHECK_FALSE(Doorbell(Fd(pipe[1])).is_there());
  CHECK_FALSE(Doorbell(Fd(::eventfd(0, 0))).is_there());
  CHECK_FALSE(Doorbell(Fd(::open("/dev/null", O_WRONLY | O_NONBLOCK))).is_there());
  CHECK_FALSE(Doorbell(Fd()).is_there());
  CHECK(Doorbell(Fd(::eventfd(0, EFD_NONBLOCK))).is_there());
}

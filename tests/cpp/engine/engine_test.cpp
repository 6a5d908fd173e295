// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/engine.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/group.h"
#include "harness/catch.h"
#include "harness/sanitized.h"

using namespace aikido;
using engine::Engine;
using std::chrono::seconds;

namespace {

// An engine with a group of one rank, without links.
struct Alone {
  Alone() {
    engine->run_and_wait([this] { engine->add(&group); });
  }
  static std::shared_ptr<Engine> start() {
    auto engine = Engine::start("127.0.0.1", seconds(1), 0, 0);
    REQUIRE(engine.is_ok());
    return *engine;
  }
  static engine::GroupOptions options() {
    engine::GroupOptions options;
    options.self = Rank(0);
    options.size = 1;
    return options;
  }
  std::shared_ptr<Engine> engine = start();
  engine::Group group{&engine->loop(), options()};
};

}  // namespace

TEST_CASE("work runs on the progress thread, in order", "[tcp]") {
  auto engine = Engine::start("127.0.0.1", seconds(1), 0, 0);
  REQUIRE(engine.is_ok());
  CHECK((*engine)->address().port != 0);
  std::vector<int> seen;
  std::thread::id id;
  for (int i = 0; i < 10; ++i) (*engine)->post([&seen, i] { seen.push_back(i); });
  (*engine)->run_and_wait([&] { id = std::this_thread::get_id(); });
  CHECK(seen == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(id != std::this_thread::get_id());
  CHECK((*engine)->num_strangers() == 0);
}

TEST_CASE("an address that is not of this host is refused with a hint", "[tcp]") {
  auto engine = Engine::start("192.0.2.1", seconds(1), 0, 0);
  REQUIRE_FALSE(engine.is_ok());
  CHECK(engine.status().message().find("AIKIDO_SOCKET_IFNAME") != std::string::npos);
}

// A sanitizer needs descriptors to print an exception.
#ifndef AIKIDO_IS_SANITIZED
TEST_CASE("too few descriptors give an error, for any number of them", "[tcp]") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  const int first = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // the first free one
  ::close(first);
  Status last;
  int num_told = 0;
  for (few.rlim_cur = static_cast<rlim_t>(first); num_told < 50; ++few.rlim_cur) {
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    const auto engine = Engine::start("127.0.0.1", seconds(1), 0, 0);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    if (engine.is_ok()) break;
    last = engine.status();
    ++num_told;
    CHECK(last.code() == Code::kInvalidArgument);
    CHECK(last.message().find("EMFILE (Too many open files); raise the limit") !=
          std::string::npos);
  }
  CHECK(num_told > 5);  // of the loop, the uplink and the listener
  CHECK(last.message().find("cannot listen on 127.0.0.1: EMFILE") == 0);
}

#endif

TEST_CASE("work of a caller that has a defect is not done again", "[tcp]") {
  Alone alone;
  int times = 0;
  const auto fail = [&] {
    ++times;
    AIKIDO_CHECK(false, "on purpose");
  };
  const SystemClock clock;
  const TimePoint until = clock.now() + seconds(10);
  while (!alone.engine->drive_with(fail) && clock.now() < until) continue;
  CHECK(times == 1);
  Status why;
  alone.engine->run_and_wait([&] {
    why = alone.group.failure();
    alone.engine->remove(&alone.group);
  });
  CHECK(why.message().find("on purpose") != std::string::npos);
}

TEST_CASE("a defect aborts the groups, and no call hangs", "[tcp]") {
  Alone alone;
  bool ran_behind = false;
  alone.engine->run_and_wait([] { AIKIDO_CHECK(false, "on purpose"); });
  alone.engine->run_and_wait([&] { ran_behind = true; });
  CHECK(ran_behind);
  Status status;
  alone.engine->run_and_wait([&] {
    collectives::Call call;
    call.kind = collectives::CallKind::kBarrier;
    collectives::LocalCall local;
    local.on_done = [&](const Status& s, const collectives::Outcome&) { status = s; };
    alone.group.call(call, std::move(local), seconds(1));
    alone.engine->remove(&alone.group);
  });
  CHECK(status.code() == Code::kInternal);
  CHECK(status.message().find("on purpose") != std::string::npos);
}

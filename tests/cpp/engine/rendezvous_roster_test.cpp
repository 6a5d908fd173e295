// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of members that find each other by their handles: early, late, again, and
// without some of them.

#include <future>
#include <optional>
#include <thread>

#include "engine/communicator.h"
#include "harness/catch.h"
#include "harness/members.h"

using namespace aikido;
using engine::Communicator;
using engine::Engine;
using membership::MemberHandle;
using membership::Order;
using membership::Roster;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// A process. Its engine outlives the groups in which it takes part.
struct Member {
  std::shared_ptr<Engine> engine;
  MemberHandle handle;
  std::shared_ptr<Communicator> view;
  Epoch epoch{0};
};

Member start() {
  auto engine = aikido::testing::start_engine();
  const auto handle = MemberHandle::random(engine->address(), false);
  return {std::move(engine), handle, nullptr};
}

std::vector<Member> start(size_t count) {
  std::vector<Member> members;
  while (members.size() < count) members.push_back(start());
  return members;
}

using Handles = std::vector<std::string>;

Handles handles(const std::vector<Member*>& members) {
  Handles texts;
  for (const Member* m : members) texts.push_back(m->handle.to_string());
  return texts;
}

Status join(Member& member, int64_t uuid, const Handles& texts,
            Duration timeout = seconds(20), const std::string& agreed = "a=1") {
  auto roster = Roster::make(uuid, texts, Order::kGiven, member.handle);
  if (!roster) return roster.status();
  engine::GroupOptions options;
  options.name = "joined";
  options.operation.chunk_bytes = 64 << 10;
  auto view = Communicator::make(member.engine, *roster, options, agreed);
  const Status joined = view->join(*roster, member.epoch, timeout);
  if (joined.has_failed()) return joined;
  member.epoch = view->epoch();
  member.view = view;
  return joined;
}

std::future<Status> join_soon(Member& member, int64_t uuid, Handles texts,
                              Duration timeout = seconds(20), Duration wait = {},
                              std::string agreed = "a=1") {
  return std::async(std::launch::async, [=, &member, texts = std::move(texts)] {
    std::this_thread::sleep_for(wait);
    return join(member, uuid, texts, timeout, agreed);
  });
}

// All members join at once, and all succeed.
void join_all(const std::vector<Member*>& members, int64_t uuid) {
  std::vector<std::future<Status>> joining;
  for (Member* m : members) joining.push_back(join_soon(*m, uuid, handles(members)));
  for (auto& j : joining) {
    const Status joined = j.get();
    INFO(joined.message());
    REQUIRE(joined.is_ok());
  }
}

// Reduces 1, 2, 4, ... by the place in `members`. Returns the sum on each member.
std::vector<float> reduce(const std::vector<Member*>& members) {
  std::vector<std::vector<float>> data;
  for (size_t i = 0; i < members.size(); ++i)
    data.emplace_back(1, static_cast<float>(1 << i));
  std::vector<std::future<aikido::testing::End>> ends;
  for (size_t i = 0; i < members.size(); ++i)
    ends.push_back(aikido::testing::allreduce(*members[i]->view, data[i]));
  std::vector<float> sums;
  for (size_t i = 0; i < members.size(); ++i) {
    REQUIRE(ends[i].get().status.is_ok());
    sums.push_back(data[i][0]);
  }
  return sums;
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("members that have handles need no store", "[tcp]") {
  auto m = start(4);
  join_all({&m[0], &m[1], &m[2], &m[3]}, 1);
  CHECK(reduce({&m[0], &m[1], &m[2], &m[3]}) == std::vector<float>(4, 15));
  for (const Member& member : m) {
    CHECK(member.view->num_calls() == 1);
    CHECK(member.view->epoch() == Epoch(1));
  }
}

TEST_CASE("a single member joins without any other member", "[tcp]") {
  auto m = start();
  CHECK(join(m, 1, handles({&m})).is_ok());
  CHECK(reduce({&m}) == std::vector<float>{1});
}

TEST_CASE("an early member waits for a late one of lower or higher rank", "[tcp]") {
  auto m = start(3);
  const auto all = handles({&m[0], &m[1], &m[2]});
  const size_t late = GENERATE(0u, 1u, 2u);
  std::vector<std::future<Status>> joining;
  for (size_t i = 0; i < 3; ++i) {
    const Duration wait = i == late ? milliseconds(150) : milliseconds(0);
    joining.push_back(join_soon(m[i], 1, all, seconds(20), wait));
  }
  for (auto& j : joining) CHECK(j.get().is_ok());
  CHECK(reduce({&m[0], &m[1], &m[2]}) == std::vector<float>(3, 7));
}

TEST_CASE("members leave and come back, and the epoch grows for all", "[tcp]") {
  auto m = start(3);
  join_all({&m[0], &m[1], &m[2]}, 1);
  int64_t uuid = 2;
  for (size_t turn = 0; turn < 3; ++turn) {
    std::vector<Member*> rest;
    for (size_t i = 0; i < 3; ++i)
      if (i != turn) rest.push_back(&m[i]);
    join_all(rest, uuid++);
    CHECK(reduce(rest) == std::vector<float>(2, 3));
    rest.push_back(&m[turn]);
    join_all(rest, uuid++);
    CHECK(reduce(rest) == std::vector<float>(3, 7));
    CHECK(m[turn].epoch == Epoch(2 * turn + 3));
    CHECK(m[0].epoch == m[1].epoch);
    CHECK(m[0].epoch == m[2].epoch);
  }
}

TEST_CASE("a group with a process that is gone does not stop the next group", "[tcp]") {
  auto m = start(3);
  join_all({&m[0], &m[1], &m[2]}, 1);
  m[1].view.reset();
  m[1].engine.reset();
  join_all({&m[2], &m[0]}, 2);
  CHECK(reduce({&m[2], &m[0]}) == std::vector<float>(2, 3));
}

TEST_CASE("a member that never arrives is named, and the previous group still works",
          "[tcp]") {
  auto m = start(3);
  join_all({&m[0], &m[1]}, 1);
  const auto all = handles({&m[0], &m[2], &m[1]});
  auto first = join_soon(m[0], 2, all, milliseconds(300));
  auto last = join_soon(m[1], 2, all, milliseconds(400));
  const Status a = first.get(), b = last.get();
  CHECK(a.code() == Code::kTimedOut);
  CHECK(a.culprit() == Rank(1));
  contains(a.message(),
           "group \"joined\": Timed out on rank 0 while waiting for rank 1 to connect");
  // Told by the first member, or by its own clock.
  contains(b.message(), "Timed out on rank ");
  contains(b.message(), "while waiting for rank 1 to connect");
  CHECK(b.culprit() == Rank(1));
  CHECK(reduce({&m[0], &m[1]}) == std::vector<float>(2, 3));
  join_all({&m[0], &m[2], &m[1]}, 3);
  CHECK(reduce({&m[0], &m[2], &m[1]}) == std::vector<float>(3, 7));
}

TEST_CASE("no member goes on before all are connected to each other", "[tcp]") {
  // Members 0 and 1 are connected to each other. Member 2 does not join.
  auto m = start(3);
  const auto all = handles({&m[0], &m[1], &m[2]});
  auto first = join_soon(m[0], 1, all, milliseconds(200));
  auto second = join_soon(m[1], 1, all, seconds(20));
  CHECK(first.get().code() == Code::kTimedOut);
  const Status told = second.get();
  CHECK(told.code() == Code::kTimedOut);
  contains(told.message(), "rank 0 gave the group up");
}

TEST_CASE("members with different uuids do not connect", "[tcp]") {
  auto m = start(2);
  const auto both = handles({&m[0], &m[1]});
  auto a = join_soon(m[0], 1, both, seconds(1));
  auto b = join_soon(m[1], 2, both, seconds(1));
  CHECK(a.get().code() == Code::kTimedOut);
  const Status dialler = b.get();
  CHECK(dialler.code() == Code::kTimedOut);
  contains(dialler.message(), "it hung up");
}

TEST_CASE("both sides get an error if their settings differ", "[tcp]") {
  auto m = start(2);
  const auto both = handles({&m[0], &m[1]});
  auto a = join_soon(m[0], 1, both, seconds(20), {}, "a=1");
  auto b = join_soon(m[1], 1, both, seconds(20), {}, "a=2");
  for (const Status& s : {a.get(), b.get()}) {
    CHECK(s.code() == Code::kInvalidArgument);
    contains(s.message(), "rank 0 has a=1 and rank 1 has a=2");
  }
}

TEST_CASE("a join that is aborted ends long before its deadline", "[tcp]") {
  auto m = start(2);
  const auto both = handles({&m[0], &m[1]});
  auto roster = Roster::make(1, both, Order::kGiven, m[1].handle);
  REQUIRE(roster.is_ok());
  auto view = Communicator::make(m[1].engine, *roster, {}, "");
  auto joining = std::async(std::launch::async,
                            [&] { return view->join(*roster, Epoch(0), seconds(60)); });
  std::this_thread::sleep_for(milliseconds(50));
  const auto start = SystemClock().now();
  view->abort({Code::kAborted, "enough"});
  const Status joined = joining.get();
  CHECK(joined.code() == Code::kAborted);
  contains(joined.message(), "enough");
  CHECK(SystemClock().now() - start < seconds(5));
}

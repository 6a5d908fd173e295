// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of wake-ups of a member on the same host: which frames can wait for the call of
// their receiver, and which members a receiver awaits.

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "harness/catch.h"
#include "harness/cluster.h"
#include "harness/spy_link.h"

using namespace aikido;
using namespace aikido::testing;
using transport::FrameKind;
using transport::Urgency;

namespace {

engine::GroupOptions options_of(Rank self) {
  engine::GroupOptions o;
  o.name = "test";
  o.self = self;
  o.size = 2;
  return o;
}

// One member of two, by default rank 1. Rank 0 owns small buckets.
struct Lone {
  ManualClock clock;
  engine::Group group;
  SpyLink* spy = nullptr;

  explicit Lone(Rank self = Rank(1)) : group(&clock, options_of(self)) {
    auto link = std::make_unique<SpyLink>();
    spy = link.get();
    group.attach(Rank(1 - self.value), std::move(link));
  }
  void call(const Call& call) {
    collectives::LocalCall local;
    local.input = local.output = bytes_of(memory);
    group.call(call, std::move(local), milliseconds(100));
  }
  // Rank 0 reports this number of calls.
  void hear_called(uint64_t called) {
    transport::FrameHeader header;
    header.kind = FrameKind::kCalled;
    header.called = called;
    CHECK(group.handler()->on_frame_begin(Rank(0), header, {}).is_ok());
  }
  Bytes memory = Bytes(64);
};

Call call_with(straggler::Kind kind) {
  Call call = allreduce_call(DType::kFloat32, 4);
  call.policy.kind = kind;
  return call;
}

}  // namespace

TEST_CASE("data of a strict call can wait for the call of the peer") {
  Lone lone;
  lone.call(call_with(straggler::Kind::kWaitAll));
  REQUIRE(lone.spy->sent.size() == 1);
  CHECK(lone.spy->sent[0].header.kind == FrameKind::kContrib);
  CHECK(lone.spy->sent[0].urgency == Urgency::kNone);
}

TEST_CASE("data of a call that may skip wakes a peer that has not called") {
  Lone lone;
  lone.call(call_with(straggler::Kind::kSkip));
  REQUIRE_FALSE(lone.spy->sent.empty());
  for (const auto& m : lone.spy->sent) CHECK(m.urgency == Urgency::kServed);
}

TEST_CASE(
    "a number of calls that no frame has told can wait, unless the peer asked for it") {
  Lone owner(Rank(0));
  owner.call(call_with(straggler::Kind::kSkip));
  const auto& sent = owner.spy->sent;
  owner.group.end_turn();
  CHECK(sent.empty());
  CHECK(owner.group.next_look() ==
        owner.clock.now() + engine::CallReport::kLongestWait);
  owner.clock.advance(engine::CallReport::kLongestWait);
  owner.group.on_time(owner.clock.now());
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].header.total_bytes == 20'000'000);
  CHECK(sent[0].header.kind == FrameKind::kCalled);
  CHECK(sent[0].urgency == Urgency::kNone);
  if (sent[0].owner) sent[0].owner->on_sent(sent[0].token);
  transport::FrameHeader question;
  question.kind = FrameKind::kAskCalled;
  question.seq = 1;
  owner.group.handler()->on_frame(Rank(1), question);
  REQUIRE(sent.size() == 2);
  CHECK(sent[1].header.kind == FrameKind::kCalled);
  CHECK(sent[1].urgency == Urgency::kServed);
}

TEST_CASE("a peer that has called is woken for data that may not fit its call") {
  Lone lone;
  lone.hear_called(1);
  lone.call(call_with(straggler::Kind::kWaitAll));
  lone.call(call_with(straggler::Kind::kWaitAll));
  REQUIRE(lone.spy->sent.size() == 2);
  CHECK(lone.spy->sent[0].urgency == Urgency::kAwaited);
  CHECK(lone.spy->sent[1].urgency == Urgency::kNone);
}

TEST_CASE("a message can wait for its receive, and an abort cannot wait") {
  Lone lone;
  collectives::SendCall send;
  send.to = Rank(0);
  send.data = bytes_of(lone.memory);
  send.bytes = lone.memory.size();
  lone.group.send(std::move(send));
  lone.group.abort({Code::kAborted, "given up"});
  const auto& sent = lone.spy->sent;
  REQUIRE_FALSE(sent.empty());
  CHECK(sent.front().header.kind == FrameKind::kP2pData);
  CHECK(sent.front().urgency == Urgency::kNone);
  CHECK(std::count_if(sent.begin(), sent.end(), [](const transport::OutMessage& m) {
          return m.header.kind == FrameKind::kAbort && m.urgency == Urgency::kServed;
        }) == 1);
}

TEST_CASE("a member without calls under way awaits nothing") {
  Cluster cluster({.size = 2});
  const auto awaits = [&] {
    return cluster.group(0).handler()->wake_policy(Rank(1)) ==
           transport::WakePolicy::kNow;
  };
  CHECK_FALSE(awaits());
  SECTION("a collective") {
    cluster.barrier(1);
    cluster.run_for(milliseconds(1));
    CHECK_FALSE(awaits());  // the call of another member
    cluster.barrier(0);
    CHECK(awaits());
    cluster.run_for(milliseconds(1));
    CHECK_FALSE(awaits());
  }
  SECTION("a barrier that has not started") {
    cluster.allreduce(0, call_with(straggler::Kind::kWaitAll), Bytes(16));
    cluster.barrier(0);
    CHECK(awaits());
  }
  SECTION("a receive") {
    const auto received = cluster.receive(0, 1, 7, 8);
    CHECK(awaits());
    cluster.send(1, 0, 7, Bytes(8));
    cluster.run_for(milliseconds(1));
    CHECK(received->is_ok());
    CHECK_FALSE(awaits());
  }
  SECTION("a call that may skip: frames that others send for it wake this member") {
    for (int rank : {0, 1})
      cluster.allreduce(rank, call_with(straggler::Kind::kSkip), Bytes(16));
    CHECK_FALSE(awaits());
    cluster.run_for(milliseconds(50));
    CHECK_FALSE(awaits());
    cluster.barrier(0);
    CHECK(awaits());
  }
  SECTION("the end of the group") {
    cluster.group(0).abort({Code::kAborted, "given up"});
    CHECK(awaits());
  }
}

TEST_CASE(
    "a member that waits for several members is woken for one of them at a time") {
  Cluster cluster({.size = 4});
  const auto needs = [&](int32_t rank) {
    std::vector<int32_t> now;
    for (int32_t from = 0; from < 4; ++from) {
      if (from == rank) continue;
      const auto policy = cluster.group(rank).handler()->wake_policy(Rank(from));
      if (policy == transport::WakePolicy::kNow) now.push_back(from);
    }
    return now;
  };
  using Ranks = std::vector<int32_t>;
  const Call strict = call_with(straggler::Kind::kWaitAll);
  const auto call = [&](std::initializer_list<int32_t> ranks) {
    for (const int32_t rank : ranks) cluster.allreduce(rank, strict, Bytes(16));
    cluster.run_for(milliseconds(1));
  };
  SECTION("an owner that waits for contributions") {
    call({0});
    CHECK(needs(0) == Ranks{1});
    call({2});
    CHECK(needs(0) == Ranks{1});
    call({1});
    CHECK(needs(0) == Ranks{3});
    call({3});
    CHECK(needs(0).empty());
  }
  SECTION("the first member of a barrier, which brings no bytes") {
    for (const int32_t rank : {0, 1}) cluster.barrier(rank);
    cluster.run_for(milliseconds(1));
    CHECK(needs(0) == Ranks{2});
    cluster.barrier(2);
    cluster.run_for(milliseconds(1));
    CHECK(needs(0) == Ranks{3});
  }
  SECTION("the other members, which wait for the result") {
    call({1, 2});
    CHECK(needs(1) == Ranks{0});
    CHECK(needs(2) == Ranks{0});
  }
  SECTION("two calls, of which any frame may end one") {
    call({0, 0});
    CHECK(needs(0) == Ranks{1, 2, 3});
  }
  SECTION("a receive in addition") {
    call({0});
    const auto received = cluster.receive(0, 2, 7, 8);
    CHECK(needs(0) == Ranks{1, 2, 3});
    cluster.send(2, 0, 7, Bytes(8));
    cluster.run_for(milliseconds(1));
    CHECK(needs(0) == Ranks{1});
  }
  SECTION("the end of the group") {
    call({0});
    cluster.group(0).abort({Code::kAborted, "given up"});
    CHECK(needs(0) == Ranks{1, 2, 3});
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/called_members.h"

#include "harness/catch.h"
#include "harness/idle_operation.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::Call;
using collectives::CalledMembers;
using collectives::PartialShards;

namespace {

// Rank 0 of two, with these calls of rank 1.
struct Case {
  explicit Case(uint64_t called) : host(2) {
    host.called = called;
    shards.set_participants(host.view());
  }
  static Call call_of() {
    Call call;
    call.policy.kind = straggler::Kind::kSkip;
    call.policy.floor = std::chrono::milliseconds(5);
    return call;
  }
  bool on_called(int32_t rank) {
    return members.on_called(Rank(rank), host.clock().now());
  }

  IdleHost host;
  std::shared_ptr<IdleOperation> operation =
      std::make_shared<IdleOperation>(&host, call_of(), 3);
  PartialShards shards{Rank(0), 2, Seq(3), operation->call()};
  CalledMembers members{*operation, shards};
};

}  // namespace

TEST_CASE("a quorum of calls is reported once, when the last of its members calls") {
  Case c(3);
  CHECK_FALSE(c.on_called(1));
  CHECK_FALSE(c.members.has_quorum());
  REQUIRE(c.operation->start({}).is_ok());
  CHECK(c.on_called(0));
  CHECK(c.members.has_quorum());
  CHECK_FALSE(c.on_called(1));
}

TEST_CASE("a member that calls long after a quorum has a late caller") {
  Case c(3);
  REQUIRE(c.operation->start({}).is_ok());
  CHECK(c.on_called(0));
  CHECK_FALSE(c.members.is_late_caller(Rank(1)));
  c.host.manual_clock.advance(std::chrono::milliseconds(6));
  c.on_called(1);
  CHECK(c.members.is_late_caller(Rank(1)));
}

TEST_CASE("a member that has called only earlier operations has a late caller") {
  Case c(2);
  CHECK(c.members.is_late_caller(Rank(1)));
  CHECK_FALSE(c.members.has_called(Rank(1)));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/result_sends.h"

#include "collectives/skippable/message_tokens.h"
#include "harness/catch.h"
#include "harness/idle_operation.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::PartialShards;
using collectives::ResultSends;

namespace {

constexpr int32_t kSize = 4;

// Rank 0, which owns shard 0 of operation 2. Rank 3 was skipped in operation 1.
struct Owner {
  Owner() {
    cut_whole(shards, host.view());
    history.on_committed(Seq(1), set_of(kSize, {0, 1, 2}), 0);
  }
  void send(std::initializer_list<int32_t> to, bool is_late = false) {
    sends.send(0, 0, shards.plan().num_bytes(0), set_of(kSize, to), is_late);
  }

  IdleHost host{kSize};
  std::shared_ptr<IdleOperation> operation =
      std::make_shared<IdleOperation>(&host, skippable_call(kSize * 96), 2);
  straggler::History history{std::make_shared<straggler::ResultLog>(kSize, 1 << 20)};
  PartialShards shards{Rank(0), kSize, Seq(2), operation->call()};
  ResultSends sends{*operation, history, shards};
};

}  // namespace

TEST_CASE("a result has left once half of the others have all its pieces") {
  Owner o;
  o.send({1, 2, 3});
  REQUIRE(o.host.queued.size() == 3);
  CHECK(o.host.queued[0].token == collectives::kFirstResultToken + 1);
  CHECK(o.sends.num_receivers() == 3);
  CHECK(o.sends.edition() == 1);
  CHECK_FALSE(o.sends.has_left(o.shards.at(0)));
  CHECK(o.sends.on_left(0, Rank(1)));
  CHECK_FALSE(o.sends.has_left(o.shards.at(0)));
  CHECK(o.sends.on_left(0, Rank(2)));
  CHECK(o.sends.has_left(o.shards.at(0)));
  CHECK(o.sends.on_left(0, Rank(3)));
  CHECK_FALSE(o.sends.on_left(0, Rank(3)));  // of an earlier view
}

TEST_CASE("a piece changes nothing while the same member waits for another one") {
  Owner o;
  o.send({1, 2});
  o.send({1, 2});
  CHECK_FALSE(o.sends.on_left(0, Rank(1)));
  CHECK(o.sends.on_left(0, Rank(1)));
}

TEST_CASE("a member that was skipped and has called nothing gets its result last") {
  Owner o;
  o.shards.at(0).mask = set_of(kSize, {0, 1, 2});
  const RankSet others = set_of(kSize, {1, 2, 3});
  CHECK(o.sends.last_to_get(others, o.shards.at(0)) == set_of(kSize, {3}));
  o.shards.at(0).late = set_of(kSize, {3});
  SECTION("at the latest time") {
    o.send({1, 2});
    o.shards.at(0).late_due = o.host.clock().now() + std::chrono::milliseconds(5);
    o.sends.send_to_late(0);
    CHECK(o.host.queued.size() == 2);
    o.host.manual_clock.advance(std::chrono::milliseconds(5));
    o.sends.send_to_late(0);
    CHECK(o.host.queued.size() == 3);
    CHECK(o.host.queued.back().token == 0);
    CHECK(o.host.queued.back().leaves_last);
    CHECK(o.shards.at(0).late.count() == 0);
  }
  SECTION("when it calls") {
    o.sends.send_to_caller(Rank(2));
    CHECK(o.host.queued.empty());
    o.sends.send_to_caller(Rank(3));
    CHECK(o.host.queued.size() == 1);
  }
  SECTION("not if the result is cancelled") {
    o.sends.cancel(0);
    o.sends.send_to_late(0);
    CHECK(o.host.queued.empty());
  }
}

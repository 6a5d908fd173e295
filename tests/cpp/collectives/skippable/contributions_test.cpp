// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/contributions.h"

#include "collectives/skippable/message_tokens.h"
#include "harness/catch.h"
#include "harness/idle_operation.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::Contributions;
using collectives::PartialShards;

namespace {

constexpr int32_t kSize = 4;

// Rank 0, which contributes to the shards of three others.
struct Contributor {
  Contributor() { cut_whole(shards, host.view()); }
  void start() {
    collectives::LocalCall local;
    local.input = local.output = bytes.data();
    REQUIRE(operation->start(std::move(local)).is_ok());
  }

  IdleHost host{kSize};
  std::vector<std::byte> bytes = std::vector<std::byte>(kSize * 96 * 4);
  std::shared_ptr<IdleOperation> operation =
      std::make_shared<IdleOperation>(&host, skippable_call(kSize * 96));
  straggler::History history{std::make_shared<straggler::ResultLog>(kSize, 1 << 20)};
  PartialShards shards{Rank(0), kSize, Seq(1), operation->call()};
  Contributions contributions{*operation, history, shards};
};

}  // namespace

TEST_CASE("a member contributes once to each shard, after its call") {
  Contributor c;
  CHECK_FALSE(c.contributions.may_contribute());
  c.start();
  REQUIRE(c.contributions.may_contribute());
  c.contributions.give(1);
  c.contributions.give(2);
  c.contributions.give(1);
  REQUIRE(c.host.queued.size() == 2);
  CHECK(c.host.queued[0].bytes == 96 * 4);
  CHECK(c.host.queued[0].data == c.bytes.data() + 96 * 4);
  CHECK(c.contributions.are_on_their_way());
  CHECK_FALSE(c.contributions.on_left(collectives::kContributionToken));
  CHECK(c.contributions.on_left(collectives::kContributionToken));
  CHECK_FALSE(c.contributions.on_left(0));
}

TEST_CASE("a withdrawn contribution may be sent again, to another owner") {
  Contributor c;
  c.start();
  c.contributions.give(1);
  c.contributions.withdraw(1);
  c.shards.at(1).owner = Rank(3);
  c.contributions.give(1);
  CHECK(c.host.queued.size() == 2);
}

TEST_CASE("a member whose input is gone does not contribute") {
  Contributor c;
  c.start();
  c.contributions.lose_input();
  CHECK_FALSE(c.contributions.may_contribute());
}

TEST_CASE("an owner of shards does not hesitate") {
  Contributor c;
  c.start();
  c.contributions.hesitate();
  CHECK_FALSE(c.contributions.hesitates_until());
  CHECK_FALSE(c.contributions.end_hesitation(c.host.clock().now()));
}

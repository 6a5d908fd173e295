// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/block_contributions.h"

#include "harness/catch.h"
#include "harness/idle_operation.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::BlockContributions;

namespace {

constexpr int32_t kSize = 3;
constexpr size_t kBlock = 40;

// Rank 0, which has called a reduce_scatter.
struct Contributor {
  Contributor() {
    collectives::LocalCall local;
    for (int32_t r = 0; r < kSize; ++r)
      local.out_blocks.push_back(
          {Rank(r), bytes.data() + static_cast<size_t>(r) * kBlock, kBlock});
    REQUIRE(operation->start(std::move(local)).is_ok());
  }
  // Header of a block without rank 0.
  static std::vector<std::byte> header(std::initializer_list<int32_t> mask) {
    return collectives::encode_result_header({set_of(kSize, mask)});
  }

  IdleHost host{kSize};
  std::vector<std::byte> bytes = std::vector<std::byte>(kSize * kBlock);
  std::shared_ptr<IdleOperation> operation =
      std::make_shared<IdleOperation>(&host, collectives::Call());
  BlockContributions given{*operation};
};

}  // namespace

TEST_CASE("each owner gets its block once, the next rank first") {
  Contributor c;
  c.given.give_to(set_of(kSize, {0, 1, 2}));
  c.given.give_to(set_of(kSize, {0, 1, 2}));
  REQUIRE(c.host.queued.size() == 2);
  CHECK(c.host.queued[0].header.shard == 1);
  CHECK(c.host.queued[1].data == c.bytes.data() + 2 * kBlock);
  CHECK(c.given.num_under_way() == 2);
  CHECK(c.given.bytes_under_way() == 2 * kBlock);
  c.given.on_left(c.host.queued[0].token);
  CHECK_FALSE(c.given.is_under_way(Rank(1)));
  CHECK(c.given.is_under_way(Rank(2)));
}

TEST_CASE("an owner that went on without this member gets nothing more") {
  Contributor c;
  c.given.give_to(set_of(kSize, {0, 2}));
  CHECK_FALSE(c.given.was_skipped());
  REQUIRE(c.given.read_header(Rank(1), Contributor::header({1, 2})).is_ok());
  CHECK(c.given.was_skipped());
  CHECK(c.given.without_us(Rank(1)).mask == set_of(kSize, {1, 2}));
  c.given.give_to(set_of(kSize, {0, 1, 2}));
  CHECK(c.host.queued.size() == 1);
  CHECK(c.given.num_under_way() == 1);
}

TEST_CASE("a header that names this member is refused") {
  Contributor c;
  const Status status = c.given.read_header(Rank(1), Contributor::header({0, 1}));
  CHECK(status.code() == Code::kProtocol);
}

TEST_CASE(
    "a withdrawn contribution may be given again, and its old message counts not") {
  Contributor c;
  c.given.give_to(set_of(kSize, {1}));
  c.given.withdraw(Rank(1));
  CHECK(c.given.num_under_way() == 0);
  c.given.give_to(set_of(kSize, {1}));
  REQUIRE(c.host.queued.size() == 2);
  c.given.on_left(c.host.queued[0].token);
  CHECK(c.given.is_under_way(Rank(1)));
  c.given.on_left(c.host.queued[1].token);
  CHECK(c.given.num_under_way() == 0);
}

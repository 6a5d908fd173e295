// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/shard_plan.h"

#include <random>
#include <set>

#include "harness/catch.h"

using namespace aikido;
using collectives::ShardPlan;

TEST_CASE("shards of known sizes") {
  struct Row {
    uint64_t count;
    size_t element;
    int32_t size;
    uint64_t seq;
    int32_t shards;
    int32_t first_owner;
    uint64_t first_elements, last_elements;
  };
  // At least 1024 bytes each.
  const Row rows[] = {
      {0, 4, 4, 1, 1, 1, 0, 0},         // nothing: one owner, an empty shard
      {1, 4, 4, 4, 1, 0, 1, 1},         // small: one owner
      {255, 4, 4, 3, 1, 3, 255, 255},   // 1020 bytes
      {512, 4, 4, 2, 2, 2, 256, 256},   // two owners
      {1000, 4, 4, 0, 3, 0, 336, 328},  // whole cache lines, the last takes the rest
      {4096, 4, 4, 7, 4, 3, 1024, 1024},
      {4097, 4, 4, 7, 4, 3, 1040, 977},
      {100'000, 16, 1, 9, 1, 0, 100'000, 100'000},
  };
  for (const Row& row : rows) {
    const ShardPlan plan(row.count, row.element, row.size, Seq(row.seq), 1024);
    INFO(row.count << " elements");
    CHECK(plan.num_shards() == row.shards);
    CHECK(plan.owner(0) == Rank(row.first_owner));
    CHECK(plan.num_elements(0) == row.first_elements);
    CHECK(plan.num_elements(row.shards - 1) == row.last_elements);
  }
}

TEST_CASE("a plan covers the bucket once and gives no member two shards") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t count = random() % (i % 2 == 0 ? 50 : 1'000'000);
    const size_t element = size_t{1} << (random() % 5);
    const auto size = static_cast<int32_t>(1 + random() % 70);
    const Seq seq(random());
    const ShardPlan plan(count, element, size, seq, random() % 5000);
    REQUIRE(plan.num_shards() >= 1);
    REQUIRE(plan.num_shards() <= size);
    uint64_t at = 0;
    std::set<int32_t> owners;
    for (int32_t s = 0; s < plan.num_shards(); ++s) {
      REQUIRE(plan.first_element(s) == at);
      REQUIRE(plan.first_byte(s) == at * element);
      at += plan.num_elements(s);
      const Rank owner = plan.owner(s);
      REQUIRE((owner.value >= 0 && owner.value < size));
      REQUIRE(owners.insert(owner.value).second);
      REQUIRE(plan.shard_of(owner) == s);
    }
    REQUIRE(at == count);
    for (int32_t r = 0; r < size; ++r)
      REQUIRE(plan.shard_of(Rank(r)).has_value() == owners.contains(r));
  }
}

TEST_CASE("the owner of small buckets moves around") {
  std::set<int32_t> owners;
  for (uint64_t seq = 1; seq <= 5; ++seq)
    owners.insert(ShardPlan(1, 4, 5, Seq(seq), 1024).owner(0).value);
  CHECK(owners.size() == 5);
}

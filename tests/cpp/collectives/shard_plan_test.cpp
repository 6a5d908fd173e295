// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/shard_plan.h"

#include <random>
#include <set>

#include "harness/catch.h"

using namespace aikido;
using collectives::ShardPlan;

TEST_CASE("buckets of known sizes are divided into the expected shards") {
  struct Row {
    uint64_t count;
    size_t element;
    int32_t size;
    int32_t shards;
    uint64_t first_elements, last_elements;
  };
  // Shards have at least 1024 bytes.
  const Row rows[] = {
      {0, 4, 4, 1, 0, 0},         // nothing: one owner, an empty shard
      {1, 4, 4, 1, 1, 1},         // small: one owner
      {255, 4, 4, 1, 255, 255},   // 1020 bytes
      {512, 4, 4, 2, 256, 256},   // two owners
      {1000, 4, 4, 3, 336, 328},  // whole cache lines, the last takes the rest
      {4096, 4, 4, 4, 1024, 1024},
      {4097, 4, 4, 4, 1040, 977},
      {100'000, 16, 1, 1, 100'000, 100'000},
  };
  for (const Row& row : rows) {
    const ShardPlan plan(row.count, row.element, row.size, 1024);
    INFO(row.count << " elements");
    CHECK(plan.num_shards() == row.shards);
    CHECK(plan.owner(0) == Rank(0));
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
    const ShardPlan plan(count, element, size, random() % 5000);
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

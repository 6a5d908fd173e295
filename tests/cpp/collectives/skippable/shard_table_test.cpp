// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/shard_table.h"

#include <random>

#include "harness/catch.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::ShardPlan;
using collectives::ShardTable;
using membership::Cut;

namespace {

// A cut of 4 owners. Shard 2 is divided among 3 owners, and then shard 0 among 2.
Cut sample() {
  return {Seq(1),
          ranks_of({0, 1, 2, 3}),
          RankSet(4),
          {{2, ranks_of({3, 0, 1})}, {0, ranks_of({1, 3})}}};
}

ShardTable table_of(uint64_t count, size_t least, const Cut& cut, int32_t size = 4) {
  ShardTable table(ShardPlan(count, 4, size, least), 0, 4);
  table.divide(cut, least);
  return table;
}

}  // namespace

TEST_CASE("a table without parts equals the plan") {
  const ShardPlan plan(1000, 4, 4, 64);
  const ShardTable table(plan, 3, 4);
  REQUIRE(table.size() == 4);
  CHECK(table.num_shards() == 4);
  CHECK(table.divided().empty());
  for (int32_t s = 0; s < 4; ++s) {
    CHECK(table.number(s) == 3 + s);
    CHECK(table.first_element(s) == plan.first_element(s));
    CHECK(table.num_elements(s) == plan.num_elements(s));
    CHECK(table.first_byte(s) == plan.first_byte(s));
    CHECK(table.num_bytes(s) == plan.num_bytes(s));
  }
}

TEST_CASE("parts of a shard follow the shards, with their numbers in the cut") {
  const ShardTable table = table_of(4 * 96, 64, sample());
  CHECK(table.num_shards() == 4);
  REQUIRE(table.size() == 9);
  const std::vector<ShardTable::DividedShard> divided = {{2, 4, 7}, {0, 7, 9}};
  CHECK(table.divided() == divided);
  const uint64_t firsts[] = {2 * 96, 2 * 96 + 32, 2 * 96 + 64, 0, 48};
  for (int32_t i = 4; i < 9; ++i) {
    CHECK(table.number(i) == i);
    CHECK(table.first_element(i) == firsts[i - 4]);
  }
}

TEST_CASE("a small shard stays whole, and a shard that does not exist has no parts") {
  // Shards of 64 bytes.
  CHECK(table_of(4 * 16, 64, sample()).size() == 4);
  // There is room for two parts, but there are three owners. The numbers of the other
  // parts are not used.
  const ShardTable two = table_of(4 * 32, 64, sample());
  REQUIRE(two.size() == 8);
  CHECK(two.divided().front() == ShardTable::DividedShard{2, 4, 6});
  CHECK(two.number(5) == 5);
  CHECK(two.number(6) == 7);
  // The bucket has two shards, so of the divided shards it has only shard 0.
  const ShardTable few = table_of(64, 128, sample());
  REQUIRE(few.num_shards() == 2);
  CHECK(few.divided().empty());
}

TEST_CASE("parts cover their shard without a gap, and begin at cache lines") {
  std::mt19937 random(7);
  for (int run = 0; run < 300; ++run) {
    const uint64_t count = random() % 5000;
    const ShardTable table = table_of(count, 1 + random() % 600, sample());
    for (const auto& [s, begin, end] : table.divided()) {
      REQUIRE(end - begin >= 2);
      uint64_t next = table.first_element(s);
      for (int32_t i = begin; i < end; ++i) {
        REQUIRE(table.first_element(i) == next);
        if (table.num_elements(i) > 0) REQUIRE(next % 16 == 0);
        next += table.num_elements(i);
      }
      REQUIRE(next == table.first_element(s) + table.num_elements(s));
    }
  }
}

TEST_CASE("a table may continue as a table that only has more parts") {
  Cut cut = sample();
  const ShardTable later = table_of(4 * 96, 64, cut);
  cut.divisions.pop_back();
  const ShardTable earlier = table_of(4 * 96, 64, cut);
  CHECK(earlier.is_extended_by(later));
  CHECK(later.is_extended_by(later));
  CHECK_FALSE(later.is_extended_by(earlier));
  cut.divisions[0].shard = 1;
  CHECK_FALSE(earlier.is_extended_by(table_of(4 * 96, 64, cut)));
  CHECK_FALSE(earlier.is_extended_by(table_of(4 * 96, 64, cut, 3)));
  CHECK_FALSE(ShardTable(ShardPlan(10, 4, 1, 64), 0, 4)
                  .is_extended_by(ShardTable(ShardPlan(10, 4, 1, 64), 1, 4)));
}

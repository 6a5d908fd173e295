// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/item_table.h"

#include <thread>
#include <vector>

#include "harness/catch.h"

using namespace aikido::reassign;

TEST_CASE("items are claimed from the front and given from the tail") {
  ItemTable table(5);
  const auto first = table.claim();
  REQUIRE(first);
  CHECK(first->index == 0);
  CHECK(first->num_left == 4);
  CHECK(table.give_tail(2) == ItemRange{3, 2});
  CHECK(table.unclaimed() == ItemRange{1, 2});
  CHECK(table.claim()->num_left == 1);
  CHECK(table.claim()->index == 2);
  CHECK_FALSE(table.claim());
}

TEST_CASE("a table gives no more items than it has") {
  ItemTable table(3);
  CHECK(table.give_tail(9) == ItemRange{0, 3});
  CHECK(table.give_tail(1).count == 0);
  CHECK_FALSE(table.claim());
  CHECK_FALSE(ItemTable(0).claim());
}

TEST_CASE("two threads never get the same item, and no item is left") {
  constexpr uint32_t kItems = 20'000;
  ItemTable table(kItems);
  std::vector<int> taken(kItems);  // each element is written by one thread
  std::thread training([&] {
    while (const auto claimed = table.claim()) ++taken[claimed->index];
  });
  for (ItemRange range = table.give_tail(1); range.count > 0;
       range = table.give_tail(3))
    for (uint32_t i = range.first; i < range.end(); ++i) ++taken[i];
  training.join();
  CHECK(taken == std::vector<int>(kItems, 1));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/item_rate.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::reassign;
using namespace std::chrono_literals;

TEST_CASE("the speed of a rank is the median time of a unit of cost") {
  ItemRate rate;
  CHECK_FALSE(rate.ns_per_cost());
  rate.on_item(2, 20ns);
  CHECK(*rate.ns_per_cost() == 10);
  rate.on_item(1, 12ns);
  CHECK(*rate.ns_per_cost() == 11);
  rate.on_item(1, 12ns);
  CHECK(*rate.ns_per_cost() == 12);
}

TEST_CASE("a single slow item changes nothing") {
  ItemRate rate;
  for (int i = 0; i < 8; ++i) rate.on_item(1, 10ns);
  rate.on_item(1, 500ns);
  rate.on_item(1, 10ns);
  CHECK(*rate.ns_per_cost() == 10);
  CHECK(rate.deviation() == 0);
}

TEST_CASE("two slow items of the last three show another speed, in both directions") {
  ItemRate rate;
  for (int i = 0; i < 100; ++i) rate.on_item(1, 10ns);
  rate.on_item(1, 40ns);
  CHECK(*rate.ns_per_cost() == 10);
  rate.on_item(1, 40ns);
  CHECK(*rate.ns_per_cost() == 40);
  for (int i = 0; i < 16; ++i) rate.on_item(1, 40ns);
  rate.on_item(1, 10ns);
  rate.on_item(1, 10ns);
  CHECK(*rate.ns_per_cost() == 10);
}

TEST_CASE("one item that is far off shows the present speed until the next one ends") {
  ItemRate rate;
  CHECK_FALSE(rate.present_ns_per_cost());
  for (int i = 0; i < 8; ++i) rate.on_item(1, 10ns);
  rate.on_item(1, 19ns);
  CHECK(*rate.present_ns_per_cost() == 10);
  rate.on_item(1, 10ns);
  rate.on_item(1, 4ns);
  CHECK(*rate.present_ns_per_cost() == 4);
  rate.on_item(1, 10ns);
  CHECK(*rate.present_ns_per_cost() == 10);
  rate.on_item(1, 90ns);
  CHECK(*rate.present_ns_per_cost() == 90);
  CHECK(*rate.ns_per_cost() == 10);
}

TEST_CASE("an item within the noise does not show the present speed") {
  ItemRate rate;
  for (int i = 0; i < 16; ++i) rate.on_item(1, i % 2 == 0 ? 8ns : 12ns);
  rate.on_item(1, 30ns);
  CHECK(*rate.present_ns_per_cost() < 13);
}

TEST_CASE("noise is no change of the speed") {
  ItemRate rate;
  for (int i = 0; i < 64; ++i) rate.on_item(1, i % 2 == 0 ? 8ns : 12ns);
  CHECK(*rate.ns_per_cost() == 10);
  CHECK(rate.deviation() == Approx(1.4826 * 0.2));
  rate.on_item(1, 13ns);
  rate.on_item(1, 13ns);
  CHECK(*rate.ns_per_cost() < 12.5);
}

TEST_CASE("items without a cost or a time are ignored") {
  ItemRate rate;
  rate.on_item(0, 10ns);
  rate.on_item(1, 0ns);
  CHECK_FALSE(rate.ns_per_cost());
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Bounds, efficiency and speed-up, computed by hand.
#include "ordering/efficiency.h"

#include <limits>

#include "harness/catch.h"
#include "ordering/graphs.h"

namespace aikido::ordering {
namespace {

TEST_CASE("the bounds are the time of all ops and of the busier resource") {
  const auto bounds = bounds_of(testing::chain({2, 3}, {1, 9}));
  REQUIRE(bounds.communication_s == 5);
  REQUIRE(bounds.computation_s == 10);
  REQUIRE(bounds.upper_s() == 15);
  REQUIRE(bounds.lower_s() == 10);
  REQUIRE(bounds.ratio() == 0.5);
  REQUIRE(bounds.speed_up() == 0.5);
}

TEST_CASE("efficiency goes from no overlap to complete overlap") {
  const auto bounds = bounds_of(testing::chain({2, 3}, {1, 9}));
  REQUIRE(bounds.efficiency(15) == 0);
  REQUIRE(bounds.efficiency(14) == 0.2);
  REQUIRE(bounds.efficiency(10) == 1);
}

TEST_CASE("without use of one resource there is nothing to win") {
  const auto only = bounds_of(testing::Builder().transfer("r", 3).graph());
  REQUIRE(only.efficiency(3) == 1);
  REQUIRE(only.speed_up() == 0);
  REQUIRE(only.ratio() == std::numeric_limits<double>::infinity());
  REQUIRE(bounds_of(Graph{}).speed_up() == 0);
  REQUIRE(bounds_of(Graph{}).efficiency(0) == 1);
}

}  // namespace
}  // namespace aikido::ordering

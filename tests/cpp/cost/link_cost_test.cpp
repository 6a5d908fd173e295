// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "cost/link_cost.h"

#include <limits>

#include "harness/catch.h"

namespace aikido::cost {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST_CASE("a link takes numbers from 0 up") {
  REQUIRE(validate(LinkCost{0, 0}).is_ok());
  REQUIRE(validate(LinkCost{-1, 0}).message() ==
          "alpha of the link is -1; it takes a finite number from 0 up");
  REQUIRE(validate(LinkCost{0, kInfinity}).message() ==
          "beta of the link is inf; it takes a finite number from 0 up");
}

}  // namespace
}  // namespace aikido::cost

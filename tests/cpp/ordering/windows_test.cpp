// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Windows of transfers, computed by hand.
#include "ordering/windows.h"

#include "harness/catch.h"
#include "ordering/graphs.h"

namespace aikido::ordering {
namespace {

using testing::Builder;

void require_is(const Window& of, double ready, double first_use, double tail,
                double slack) {
  REQUIRE(of.ready_s == ready);
  REQUIRE(of.first_use_s == first_use);
  REQUIRE(of.tail_s == tail);
  REQUIRE(of.slack_s == slack);
}

TEST_CASE("a window goes from the gradient to the first use in the next forward") {
  const auto graph = Builder()
                         .compute("b1", 3)
                         .compute("b0", 2, {"b1"})
                         .transfer("g1", 4, {"b1"})
                         .transfer("g0", 1, {"b0"})
                         .compute("f0", 2, {"b0", "g0"})
                         .compute("f1", 1, {"f0", "g1"})
                         .graph();
  auto windows = windows_of(graph);
  REQUIRE(windows->end_s == 8);
  REQUIRE(windows->of.size() == 2);
  REQUIRE(windows->of[0].op == 2);
  require_is(windows->of[0], 3, 7, 1, 0);
  require_is(windows->of[1], 5, 5, 3, -1);
}

TEST_CASE("the first of several users counts, and the end where there is none") {
  const auto graph = Builder()
                         .transfer("shared", 1)
                         .transfer("unused", 1)
                         .compute("a", 2)
                         .compute("b", 3, {"shared", "a"})
                         .compute("c", 4, {"shared", "b"})
                         .graph();
  auto windows = windows_of(graph);
  require_is(windows->of[0], 0, 2, 7, 1);
  require_is(windows->of[1], 0, 9, 0, 8);
}

TEST_CASE("a transfer that needs another is ready when that one is") {
  const auto graph = Builder()
                         .compute("c", 2)
                         .transfer("scatter", 9, {"c"})
                         .transfer("gather", 9, {"scatter"})
                         .graph();
  REQUIRE(windows_of(graph)->of[1].ready_s == 2);
}

TEST_CASE("windows of a graph that is not valid are refused") {
  REQUIRE(windows_of(Graph{{{}}, {}}).status().message() == "op 0 has no name");
}

}  // namespace
}  // namespace aikido::ordering

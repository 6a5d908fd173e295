// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Search over all orders, compared with another method to find the best order.
#include "ordering/best_order.h"

#include "harness/catch.h"
#include "ordering/best_makespan.h"
#include "ordering/graphs.h"

namespace aikido::ordering {
namespace {

using testing::Builder;
using testing::names_of;
using Names = std::vector<std::string>;

TEST_CASE("the first of equally good orders is taken") {
  auto best = best_order(testing::parallel({2, 2}, {3, 3}), {});
  REQUIRE(best->makespan_s == 8);
  REQUIRE(best->order == std::vector<size_t>{0, 2});
}

TEST_CASE("a long transfer is hidden behind the computing of a short one") {
  const auto graph = testing::parallel({6, 1}, {1, 6});
  auto best = best_order(graph, {});
  REQUIRE(names_of(graph, best->order) == Names{"r1", "r0"});
  REQUIRE(best->makespan_s == 8);
}

TEST_CASE("the best of all orders is that of a programme over sets of transfers") {
  std::mt19937 dice(41);
  for (int i = 0; i < 150; ++i) {
    CAPTURE(i);
    const auto graph = testing::random_graph(dice, 1 + dice() % 5);
    auto best = best_order(graph, {});
    REQUIRE(best.is_ok());
    REQUIRE(best->makespan_s == testing::best_makespan(graph));
  }
  const auto largest = testing::random_graph(dice, kMostTransfersToSearch);
  REQUIRE(best_order(largest, {})->makespan_s == testing::best_makespan(largest));
}

TEST_CASE("orders that cannot be kept are skipped") {
  SimulateOptions options;
  options.link = LinkRule::kInOrder;
  const auto graph = Builder()
                         .transfer("second", 1, {"c"})
                         .transfer("first", 1)
                         .compute("c", 1, {"first"})
                         .graph();
  REQUIRE(names_of(graph, best_order(graph, options)->order) ==
          Names{"first", "second"});
}

TEST_CASE("a graph without a best order is refused") {
  const std::vector<double> nine(9, 1);
  REQUIRE(best_order(testing::chain(nine, nine), {}).status().message() ==
          "there are 9 transfers; all orders are looked at for 8 at most");
  SimulateOptions options;
  options.link = LinkRule::kFifo;
  REQUIRE(best_order(testing::chain({1}, {1}), options).status().message() ==
          "fifo has no order; the best one is looked for with other rules");
  options.link = LinkRule::kInOrder;
  options.processors = 0;
  REQUIRE(best_order(testing::chain({1}, {1}), options).status().message() ==
          "there are 0 processors; it takes a number from 1 up");
  REQUIRE(best_order(Graph{{{}}, {}}, {}).status().message() == "op 0 has no name");
}

}  // namespace
}  // namespace aikido::ordering

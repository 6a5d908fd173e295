// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Orders of fixed graphs, and the rule of TAC on random graphs.
#include "ordering/tictac.h"

#include <algorithm>
#include <limits>

#include "harness/catch.h"
#include "ordering/graphs.h"

namespace aikido::ordering {
namespace {

using testing::Builder;
using testing::names_of;
using Names = std::vector<std::string>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Names tic_of(const Graph& graph) {
  return names_of(graph, ops_of(tic(graph)));
}
Names tac_of(const Graph& graph) {
  return names_of(graph, ops_of(tac(graph)));
}
std::vector<size_t> places_of(const std::vector<Placed>& placed) {
  std::vector<size_t> places;
  for (const Placed& it : placed) places.push_back(it.place);
  return places;
}

// r0 and r1 are needed first. Then one branch needs r2, the other r3. Then the join of
// both needs r4.
Graph diamond() {
  return Builder()
      .transfer("r4", 1)
      .transfer("r3", 6)
      .transfer("r2", 2)
      .transfer("r1", 3)
      .transfer("r0", 4)
      .compute("top", 5, {"r0", "r1"})
      .compute("left", 3, {"top", "r2"})
      .compute("right", 8, {"top", "r3"})
      .compute("bottom", 2, {"left", "right", "r4"})
      .graph();
}

// Two chains that meet at the end: one computes much, the other transfers much.
Graph towers() {
  return Builder()
      .transfer("wire0", 8)
      .transfer("wire1", 8)
      .transfer("work0", 2)
      .transfer("work1", 2)
      .compute("wire0c", 1, {"wire0"})
      .compute("wire1c", 1, {"wire0c", "wire1"})
      .compute("work0c", 6, {"work0"})
      .compute("work1c", 6, {"work0c", "work1"})
      .compute("both", 1, {"wire1c", "work1c"})
      .graph();
}

TEST_CASE("a graph without transfers has an empty order") {
  REQUIRE(tic(Graph{}).empty());
  REQUIRE(tac(Builder().compute("c", 1).graph()).empty());
}

TEST_CASE("a chain is transferred from its first layer on") {
  const auto graph = testing::chain({5, 1, 3, 2}, {1, 9, 1, 4});
  REQUIRE(tic_of(graph) == Names{"r0", "r1", "r2", "r3"});
  REQUIRE(tac_of(graph) == Names{"r0", "r1", "r2", "r3"});
}

TEST_CASE("TIC has the first two parameters of a chain in one place") {
  const auto graph = testing::chain({1, 1, 1, 1}, {1, 1, 1, 1});
  REQUIRE(places_of(tic(graph)) == std::vector<size_t>{0, 0, 2, 3});
  REQUIRE(places_of(tac(graph)) == std::vector<size_t>{0, 1, 2, 3});
}

TEST_CASE("a chain whose transfers are listed backwards keeps its order") {
  Builder build;
  for (const char* name : {"r2", "r1", "r0"}) build.transfer(name, 1);
  const auto graph = build.compute("c0", 1, {"r0"})
                         .compute("c1", 1, {"r1", "c0"})
                         .compute("c2", 1, {"r2", "c1"})
                         .graph();
  REQUIRE(tic_of(graph) == Names{"r0", "r1", "r2"});
  REQUIRE(tac_of(graph) == Names{"r0", "r1", "r2"});
}

TEST_CASE("parallel transfers go by Johnson's rule, and TIC cannot tell them apart") {
  // Transfers with M < P go first, by M: r3, r1. Transfers with M > P follow, by P from
  // the largest: r2, r0.
  const auto graph = testing::parallel({9, 3, 6, 2}, {1, 4, 5, 7});
  REQUIRE(tac_of(graph) == Names{"r3", "r1", "r2", "r0"});
  REQUIRE(tic_of(graph) == Names{"r0", "r1", "r2", "r3"});
  REQUIRE(places_of(tic(graph)) == std::vector<size_t>{0, 0, 0, 0});
}

TEST_CASE("transfers that both branches of a diamond need go first") {
  // M+ with the general oracle is 2 for r0 and r1, 3 for r2 and r3, and 5 for r4.
  REQUIRE(tic_of(diamond()) == Names{"r1", "r0", "r2", "r3", "r4"});
  REQUIRE(places_of(tic(diamond())) == std::vector<size_t>{0, 0, 2, 2, 4});
  // No transfer has a P at first. M+ of r0 and r1 is 7, and both have one user, so the
  // list decides. Then r0 has P 5 and goes. r2 (M 2, P 3) goes before r3 (M 6, P 8):
  // min(8, 2) < min(3, 6).
  REQUIRE(tac_of(diamond()) == Names{"r1", "r0", "r2", "r3", "r4"});
}

TEST_CASE("the tower that computes goes first with TAC, and TIC cannot know") {
  REQUIRE(tac_of(towers()) == Names{"work0", "work1", "wire0", "wire1"});
  REQUIRE(tic_of(towers()) == Names{"wire0", "wire1", "work0", "work1"});
  REQUIRE(places_of(tic(towers())) == std::vector<size_t>{0, 0, 0, 0});
}

TEST_CASE("a transfer that shares no computing is last with TIC") {
  const auto graph = Builder()
                         .transfer("alone", 1)
                         .transfer("r0", 1)
                         .transfer("r1", 1)
                         .compute("first", 1, {"alone"})
                         .compute("both", 1, {"r0", "r1"})
                         .graph();
  REQUIRE(tic_of(graph) == Names{"r0", "r1", "alone"});
  REQUIRE(tac_of(graph) == Names{"alone", "r0", "r1"});
}

TEST_CASE("a transfer that nothing needs is last") {
  const auto graph =
      Builder().transfer("unused", 1).transfer("r", 5).compute("c", 1, {"r"}).graph();
  REQUIRE(tac_of(graph) == Names{"r", "unused"});
  REQUIRE(tic_of(graph) == Names{"r", "unused"});
}

TEST_CASE("the rule says before for the larger overlap, then for the smaller M+") {
  REQUIRE(is_before({2, 7, 9}, {3, 4, 1}));
  REQUIRE(!is_before({3, 4, 1}, {2, 7, 9}));
  REQUIRE(is_before({2, 0, 4}, {3, 0, 5}));
  REQUIRE(!is_before({2, 0, 5}, {3, 0, 5}));
}

TEST_CASE("the rule of TAC can go round in a circle") {
  const Properties a{1, 2, 3}, b{1, 1, 2}, c{2, 1, 1};
  REQUIRE(is_before(a, c));
  REQUIRE(is_before(c, b));
  REQUIRE(is_before(b, a));
}

struct Choices {
  int with_least = 0, without = 0;
};

// Compares each choice of TAC with the published rule.
void check_choices(const Graph& graph, Choices& count) {
  const auto transfers = transfers_of(graph);
  Outstanding outstanding(graph, TimeOracle::kMeasured);
  for (const Placed& it : tac(graph)) {
    const auto taken = static_cast<size_t>(
        std::find(transfers.begin(), transfers.end(), it.op) - transfers.begin());
    const auto of = outstanding.properties();
    bool is_some_least = false, is_taken_least = true;
    for (size_t i = 0; i < transfers.size(); ++i) {
      if (!outstanding.has(i)) continue;
      bool is_least = true;
      for (size_t k = 0; k < transfers.size(); ++k)
        if (outstanding.has(k) && is_before(of[k], of[i])) is_least = false;
      is_some_least |= is_least;
      if (i == taken) is_taken_least = is_least;
      // By the first part of the rule alone, no transfer is before the chosen one.
      Properties first = of[i], second = of[taken];
      first.m_plus = second.m_plus = kInfinity;
      REQUIRE(!is_before(first, second));
    }
    REQUIRE(is_taken_least == is_some_least);
    ++(is_some_least ? count.with_least : count.without);
    outstanding.complete(taken);
  }
}

TEST_CASE("TAC takes the least transfer wherever the published rule has one") {
  std::mt19937 dice(5);
  Choices count;
  for (int i = 0; i < 2000; ++i) {
    CAPTURE(i);
    check_choices(testing::random_graph(dice, 1 + dice() % 8), count);
  }
  // Only one choice has no least transfer.
  REQUIRE(count.with_least == 9077);
  REQUIRE(count.without == 1);
}

}  // namespace
}  // namespace aikido::ordering

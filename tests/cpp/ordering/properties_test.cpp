// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// M, P and M+ of TicTac, computed by hand, and compared with their definition on random
// graphs.
#include "ordering/properties.h"

#include <algorithm>
#include <limits>
#include <set>

#include "harness/catch.h"
#include "ordering/graphs.h"

namespace aikido::ordering {
namespace {

using testing::Builder;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void require_is(const Properties& of, double m, double p, double m_plus) {
  REQUIRE(of.m == m);
  REQUIRE(of.p == p);
  REQUIRE(of.m_plus == m_plus);
}

TEST_CASE("on a chain the first transfer alone unlocks computing") {
  Outstanding outstanding(testing::chain({2, 3, 4}, {10, 20, 30}),
                          TimeOracle::kMeasured);
  auto of = outstanding.properties();
  require_is(of[0], 2, 10, 5);
  require_is(of[1], 3, 0, 5);
  require_is(of[2], 4, 0, 9);
  outstanding.complete(0);
  REQUIRE(outstanding.size() == 2);
  REQUIRE(!outstanding.has(0));
  of = outstanding.properties();
  require_is(of[1], 3, 20, 7);
  require_is(of[2], 4, 0, 7);
  outstanding.complete(1);
  require_is(outstanding.properties()[2], 4, 30, kInfinity);
}

TEST_CASE("the general oracle counts transfers and takes computing for nothing") {
  const auto of =
      Outstanding(testing::chain({2, 3, 4}, {10, 20, 30}), TimeOracle::kGeneral)
          .properties();
  require_is(of[0], 1, 0, 2);
  require_is(of[1], 1, 0, 2);
  require_is(of[2], 1, 0, 3);
}

TEST_CASE("transfers that share no computing op have no M+") {
  const auto of = Outstanding(testing::parallel({2, 3}, {5, 7}), TimeOracle::kMeasured)
                      .properties();
  require_is(of[0], 2, 5, kInfinity);
  require_is(of[1], 3, 7, kInfinity);
}

TEST_CASE("a transfer depends on no other transfer") {
  const auto of = Outstanding(Builder()
                                  .transfer("r0", 2)
                                  .compute("backward", 5, {"r0"})
                                  .transfer("r1", 3, {"backward"})
                                  .compute("forward", 7, {"r1"})
                                  .graph(),
                              TimeOracle::kMeasured)
                      .properties();
  require_is(of[0], 2, 5, kInfinity);
  require_is(of[1], 3, 7, kInfinity);
}

TEST_CASE("completing a transfer twice is refused") {
  Outstanding outstanding(testing::parallel({1}, {1}), TimeOracle::kMeasured);
  outstanding.complete(0);
  REQUIRE_THROWS_AS(outstanding.complete(0), InternalError);
}

// Computes the properties as the definition says, with sets, and visits all computing
// ops each time.
std::vector<Properties> by_definition(const Graph& graph,
                                      const std::set<size_t>& left) {
  const auto before = neighbours_of(graph).before;
  std::vector<std::set<size_t>> dep(graph.ops.size());
  std::vector<Properties> of(graph.ops.size());
  for (const size_t r : left) of[r] = {graph.ops[r].time_s, 0, kInfinity};
  for (const size_t op : program_order(graph)) {
    if (graph.ops[op].kind == OpKind::kTransfer) {
      dep[op] = {op};
      continue;
    }
    for (const size_t needed : before[op])
      dep[op].insert(dep[needed].begin(), dep[needed].end());
    double m = 0;
    std::vector<size_t> waits_for;
    for (const size_t r : dep[op])
      if (left.contains(r)) {
        waits_for.push_back(r);
        m += graph.ops[r].time_s;
      }
    for (const size_t r : waits_for) {
      if (waits_for.size() == 1) of[r].p += graph.ops[op].time_s;
      if (waits_for.size() > 1) of[r].m_plus = std::min(of[r].m_plus, m);
    }
  }
  return of;
}

TEST_CASE("properties are as defined on random graphs, for any completed transfers") {
  std::mt19937 dice(11);
  for (int i = 0; i < 300; ++i) {
    const auto graph = testing::random_graph(dice, 1 + dice() % 8);
    const auto transfers = transfers_of(graph);
    std::set<size_t> left(transfers.begin(), transfers.end());
    Outstanding outstanding(graph, TimeOracle::kMeasured);
    while (!left.empty()) {
      const auto wanted = by_definition(graph, left);
      const auto of = outstanding.properties();
      for (size_t r = 0; r < transfers.size(); ++r) {
        CAPTURE(i, r);
        const Properties& want = wanted[transfers[r]];
        REQUIRE(outstanding.has(r) == left.contains(transfers[r]));
        if (outstanding.has(r)) require_is(of[r], want.m, want.p, want.m_plus);
      }
      size_t next = dice() % transfers.size();
      while (!outstanding.has(next)) next = (next + 1) % transfers.size();
      outstanding.complete(next);
      left.erase(transfers[next]);
    }
  }
}

}  // namespace
}  // namespace aikido::ordering

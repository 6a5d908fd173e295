// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Distance of TIC and TAC from the best order: graphs on which they reach it, and
// graphs on which they miss it, with the difference.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/catch.h"
#include "ordering/best_makespan.h"
#include "ordering/best_order.h"
#include "ordering/efficiency.h"
#include "ordering/graphs.h"
#include "ordering/simulate.h"
#include "ordering/tictac.h"

namespace aikido::ordering {
namespace {

using testing::Builder;

double makespan_of(const Graph& graph, const std::vector<size_t>& order) {
  SimulateOptions options;
  options.link = LinkRule::kInOrder;
  options.order = order;
  auto timeline = simulate(graph, options);
  if (!timeline) FAIL(timeline.status().message());
  return timeline->makespan_s;
}

// 32 transfers of 2 MiB on a link of 1 Gbit/s. Computing takes `a` times as long in
// total, and its parts are as uneven as `spread`.
struct Shape {
  std::vector<double> transfers, computes;
};
Shape shape_of(double a, double spread, uint32_t seed) {
  const double time_s = 2 * 1024 * 1024 / 125e6;
  std::mt19937 dice(seed);
  Shape shape{std::vector<double>(32, time_s), {}};
  for (size_t i = 0; i < 32; ++i)
    shape.computes.push_back(1 + spread * static_cast<double>(dice() % 100));
  const double sum = std::accumulate(shape.computes.begin(), shape.computes.end(), 0.0);
  for (double& it : shape.computes) it *= 32 * time_s / a / sum;
  return shape;
}

// Johnson's rule, which is optimal for two machines.
double johnson_makespan(const Shape& shape) {
  std::vector<size_t> order(shape.transfers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) {
    const double m = shape.transfers[i], p = shape.computes[i];
    return m < p ? std::pair(0, m) : std::pair(1, -p);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key(a) < key(b); });
  double link = 0, processor = 0;
  for (const size_t i : order) {
    link += shape.transfers[i];
    processor = std::max(processor, link) + shape.computes[i];
  }
  return processor;
}

TEST_CASE("TAC is the best order of 32 transfers of 2 MiB that go side by side") {
  for (const double a : {0.5, 1.0, 2.0})
    for (const double spread : {0.0, 0.01, 1.0})
      for (uint32_t seed = 0; seed < 20; ++seed) {
        CAPTURE(a, spread, seed);
        const auto shape = shape_of(a, spread, seed);
        const auto graph = testing::parallel(shape.transfers, shape.computes);
        const Bounds bounds = bounds_of(graph);
        REQUIRE(std::abs(bounds.ratio() - a) < 1e-9);
        const double best = bounds.efficiency(johnson_makespan(shape));
        const double reached =
            bounds.efficiency(makespan_of(graph, ops_of(tac(graph))));
        REQUIRE(reached >= 0.95 * best);
        REQUIRE(std::abs(reached - best) < 1e-9);
      }
}

TEST_CASE("TIC and TAC are the best order of a chain of 32 transfers of 2 MiB") {
  for (const double a : {0.5, 1.0, 2.0})
    for (const double spread : {0.0, 0.01, 1.0})
      for (uint32_t seed = 0; seed < 20; ++seed) {
        CAPTURE(a, spread, seed);
        const auto shape = shape_of(a, spread, seed);
        const auto graph = testing::chain(shape.transfers, shape.computes);
        // An op of the chain cannot run before the ops in front of it, so no order is
        // better than the order of the chain.
        const double best = makespan_of(graph, transfers_of(graph));
        REQUIRE(bounds_of(graph).efficiency(best) > 0.5 * std::min(a, 1 / a));
        REQUIRE(ops_of(tac(graph)) == transfers_of(graph));
        REQUIRE(ops_of(tic(graph)) == transfers_of(graph));
      }
}

TEST_CASE("the worst order of such a chain loses all that overlap can win") {
  const auto shape = shape_of(1, 0, 0);
  const auto graph = testing::chain(shape.transfers, shape.computes);
  auto order = transfers_of(graph);
  std::reverse(order.begin(), order.end());
  const Bounds bounds = bounds_of(graph);
  REQUIRE(std::abs(bounds.efficiency(makespan_of(graph, order))) < 1e-9);
  REQUIRE(bounds.efficiency(makespan_of(graph, ops_of(tac(graph)))) > 0.95);
  REQUIRE(std::abs(bounds.speed_up() - 1) < 1e-9);
}

struct Quality {
  int best_of_tac = 0, best_of_tic = 0, worse = 0;
  double tac_over_best = 0, worst_tac = 1, efficiency = 0, best_efficiency = 0;
};

Quality quality_of(int graphs, uint32_t seed) {
  std::mt19937 dice(seed);
  Quality found;
  for (int i = 0; i < graphs; ++i) {
    const auto graph = testing::random_graph(dice, 2 + dice() % 7);
    const double best = testing::best_makespan(graph);
    const double of_tac = makespan_of(graph, ops_of(tac(graph)));
    const double of_tic = makespan_of(graph, ops_of(tic(graph)));
    REQUIRE(of_tac >= best);
    found.best_of_tac += of_tac == best;
    found.best_of_tic += of_tic == best;
    found.worse += of_tac > of_tic;
    found.tac_over_best += of_tac / best / graphs;
    found.worst_tac = std::max(found.worst_tac, of_tac / best);
    const Bounds bounds = bounds_of(graph);
    found.efficiency += bounds.efficiency(of_tac) / graphs;
    found.best_efficiency += bounds.efficiency(best) / graphs;
  }
  return found;
}

TEST_CASE("on random graphs TAC is most often the best, and not always") {
  const auto found = quality_of(2000, 7);
  REQUIRE(found.best_of_tac == 1912);
  REQUIRE(found.best_of_tic == 1612);
  REQUIRE(found.worse == 43);
  REQUIRE(std::abs(found.tac_over_best - 1.0031) < 1e-4);
  REQUIRE(std::abs(found.worst_tac - 1.2195) < 1e-4);
  REQUIRE(std::abs(found.efficiency - 0.8667) < 1e-4);
  REQUIRE(std::abs(found.best_efficiency - 0.8716) < 1e-4);
}

TEST_CASE("for gradients of layers in a row TAC is the best, if transfers can pause") {
  std::mt19937 dice(19);
  SimulateOptions options;
  options.link = LinkRule::kPreemptive;
  size_t worse_without = 0;
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    const auto graph = testing::random_iteration(dice, 2 + dice() % 4);
    const double best = best_order(graph, options)->makespan_s;
    auto with_tac = options;
    with_tac.order = ops_of(tac(graph));
    REQUIRE(simulate(graph, with_tac)->makespan_s == best);
    with_tac.link = LinkRule::kInOrder;
    worse_without += simulate(graph, with_tac)->makespan_s > best;
  }
  REQUIRE(worse_without > 20);
}

TEST_CASE("TAC can be nearly twice as slow as the best, and nothing is slower") {
  // Computing that needs two transfers is in no P. So TAC sends a long transfer first
  // that enables almost no computing.
  const auto graph = Builder()
                         .transfer("half0", 0.01)
                         .transfer("half1", 0.01)
                         .transfer("long", 10)
                         .compute("much", 10, {"half0", "half1"})
                         .compute("little", 0.01, {"long"})
                         .graph();
  const double best = best_order(graph, {})->makespan_s;
  const double of_tac = makespan_of(graph, ops_of(tac(graph)));
  REQUIRE(testing::names_of(graph, ops_of(tac(graph))).front() == "long");
  REQUIRE(std::abs(best - 10.03) < 1e-9);
  REQUIRE(std::abs(of_tac - 20.02) < 1e-9);
  const Bounds bounds = bounds_of(graph);
  REQUIRE(of_tac <= bounds.upper_s());
  REQUIRE(bounds.upper_s() <= 2 * bounds.lower_s());
}

}  // namespace
}  // namespace aikido::ordering

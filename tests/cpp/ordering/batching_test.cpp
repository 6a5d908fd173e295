// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Batches, compared with all ways to cut an order, and with the simulator.
#include "ordering/batching.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/catch.h"
#include "ordering/graphs.h"
#include "ordering/simulate.h"

namespace aikido::ordering {
namespace {

using testing::Builder;

std::vector<size_t> counts_of(const BatchPlan& plan) {
  std::vector<size_t> counts;
  for (const Batch& batch : plan.batches) counts.push_back(batch.count);
  return counts;
}

BatchPlan planned(const std::vector<BatchItem>& items, const cost::LinkCost& link,
                  const BatchOptions& options = {}) {
  auto plan = plan_batches(items, link, options);
  if (!plan) FAIL(plan.status().message());
  return *plan;
}

TEST_CASE("no items make no batches") {
  REQUIRE(planned({}, {1, 1}).batches.empty());
  REQUIRE(planned({}, {1, 1}).end_s == 0);
}

TEST_CASE("items that are ready together share a batch if a transfer costs much") {
  const std::vector<BatchItem> items{{1, 0, 0}, {1, 0, 0}, {1, 0, 0}};
  const auto plan = planned(items, {5, 1});
  REQUIRE(counts_of(plan) == std::vector<size_t>{3});
  REQUIRE(plan.end_s == 8);
  REQUIRE(plan.batches[0].bytes == 3);
  REQUIRE(plan.batches[0].begin_s == 0);
  REQUIRE(plan.batches[0].end_s == 8);
}

TEST_CASE("no item waits for an item that is ready much later") {
  const std::vector<BatchItem> items{{4, 0, 0}, {1, 10, 0}};
  const auto plan = planned(items, {2, 1});
  REQUIRE(counts_of(plan) == std::vector<size_t>{1, 1});
  REQUIRE(plan.end_s == 13);
}

TEST_CASE("an item needed early goes alone, though that costs a transfer") {
  // One batch of both items ends at 7, and 6 s of computing follow. With two batches,
  // the first item arrives at 3 and the second at 9, where it is the last to be used.
  const std::vector<BatchItem> items{{1, 0, 6}, {4, 0, 0}};
  const auto plan = planned(items, {2, 1});
  REQUIRE(counts_of(plan) == std::vector<size_t>{1, 1});
  REQUIRE(plan.end_s == 9);
  REQUIRE(plan_with(items, {2, 1}, {2}).end_s == 13);
}

TEST_CASE("a batch of several stays within its limit") {
  const std::vector<BatchItem> items{{3, 0, 0}, {3, 0, 0}, {9, 0, 0}, {1, 0, 0}};
  BatchOptions options;
  options.most_bytes = 6;
  REQUIRE(counts_of(planned(items, {5, 1}, options)) == std::vector<size_t>{2, 1, 1});
}

TEST_CASE("items that make no sense are refused") {
  const auto refusal = [](std::vector<BatchItem> items, cost::LinkCost link,
                          double most) {
    return plan_batches(items, link, {most}).status().message();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(refusal({{1, 0, 0}, {1, -2, 0}}, {1, 1}, 9) ==
          "ready_s of item 1 is -2; it takes a finite number from 0 up");
  REQUIRE(refusal({{nan, 0, 0}}, {1, 1}, 9) ==
          "bytes of item 0 is nan; it takes a finite number from 0 up");
  REQUIRE(refusal({}, {1, -1}, 9) ==
          "beta of the link is -1; it takes a finite number from 0 up");
  REQUIRE(refusal({}, {1, 1}, nan) ==
          "the most bytes of a batch are nan; it takes a number from 0 up");
}

// Shortest time over all ways to cut n items into consecutive batches.
double best_of_all(const std::vector<BatchItem>& items, const cost::LinkCost& link,
                   double most_bytes) {
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t cuts = 0; cuts < 1u << (items.size() - 1); ++cuts) {
    double free = 0, end = 0;
    bool fits = true;
    for (size_t first = 0; first < items.size();) {
      double bytes = 0, ready = 0, tail = 0;
      size_t next = first;
      do {
        bytes += items[next].bytes;
        ready = std::max(ready, items[next].ready_s);
        tail = std::max(tail, items[next].tail_s);
        ++next;
      } while (next < items.size() && (cuts >> (next - 1) & 1) == 0);
      fits &= next - first == 1 || bytes <= most_bytes;
      free = std::max(free, ready) + link.alpha_s + link.beta_s * bytes;
      end = std::max(end, free + tail);
      first = next;
    }
    if (fits) best = std::min(best, end);
  }
  return best;
}

TEST_CASE("the plan is the best of all ways to cut up to ten layers") {
  std::mt19937 dice(29);
  const auto draw = [&](uint32_t most) { return static_cast<double>(dice() % most); };
  size_t parts = 0;
  for (int i = 0; i < 600; ++i) {
    std::vector<BatchItem> items(1 + dice() % 10);
    double ready = 0;
    const bool is_backward = dice() % 2 == 0;  // ready in order, used in reverse
    for (size_t k = 0; k < items.size(); ++k) {
      ready += draw(6);
      items[k] = {draw(20), is_backward ? ready : draw(30),
                  is_backward ? 3 * static_cast<double>(k) : draw(30)};
    }
    const cost::LinkCost link{draw(9), 0.25 * draw(5)};
    const BatchOptions options{
        dice() % 3 == 0 ? draw(40) : std::numeric_limits<double>::infinity()};
    CAPTURE(i);
    const auto plan = planned(items, link, options);
    REQUIRE(plan.end_s == best_of_all(items, link, options.most_bytes));
    REQUIRE(plan.end_s == plan_with(items, link, counts_of(plan)).end_s);
    parts += plan.batches.size() > 1 && plan.batches.size() < items.size();
  }
  REQUIRE(parts > 200);  // neither one batch for all nor one batch each
}

TEST_CASE("the simulator takes as long for the batches of a plan as the plan says") {
  std::mt19937 dice(31);
  for (int i = 0; i < 200; ++i) {
    CAPTURE(i);
    const cost::LinkCost link{0.5 * static_cast<double>(dice() % 8), 1e-6};
    const auto graph = with_link(testing::random_iteration(dice, 1 + dice() % 9), link);
    const auto order = transfers_of(graph);
    auto items = batch_items(graph, order);
    REQUIRE(items.is_ok());
    const auto plan = planned(*items, link);
    auto batched = with_batches(graph, order, plan, link);
    if (!batched) FAIL(batched.status().message());
    SimulateOptions options;
    options.link = LinkRule::kInOrder;
    options.compute = ComputeRule::kProgram;
    options.order = transfers_of(*batched);
    REQUIRE(options.order.size() == plan.batches.size());
    REQUIRE(std::abs(simulate(*batched, options)->makespan_s - plan.end_s) < 1e-9);
    // The plan is never slower than single transfers.
    options.order = order;
    REQUIRE(plan.end_s <= simulate(graph, options)->makespan_s + 1e-9);
  }
}

TEST_CASE("a batch is called by its first and last transfer") {
  std::mt19937 dice(1);
  const auto graph = testing::random_iteration(dice, 3);
  const auto order = transfers_of(graph);
  const cost::LinkCost link{100, 1e-6};
  auto batched = with_batches(
      graph, order, plan_with(*batch_items(graph, order), link, {2, 1}), link);
  REQUIRE(batched->ops[0].name == "g2..g1");
  REQUIRE(batched->ops[0].bytes ==
          graph.ops[order[0]].bytes + graph.ops[order[1]].bytes);
  REQUIRE(batched->ops[0].time_s == link.time_s(batched->ops[0].bytes));
  REQUIRE(batched->ops[1].name == "g0");
}

TEST_CASE("batches that a graph cannot have are refused") {
  const auto graph =
      Builder().transfer("r", 1).compute("c", 1, {"r"}).transfer("s", 1, {"c"}).graph();
  const std::vector<BatchItem> items(2);
  auto refused = with_batches(graph, {0, 2}, plan_with(items, {1, 1}, {2}), {1, 1});
  REQUIRE(refused.status().message() ==
          R"(ops need each other in a cycle: "c" -> "r..s" -> "c")");
  const std::vector<BatchItem> one(1);
  refused = with_batches(graph, {0, 2}, plan_with(one, {1, 1}, {1}), {1, 1});
  REQUIRE(refused.status().message() ==
          "the plan is of 1 transfers, and the order has 2");
  REQUIRE(batch_items(graph, {0}).status().message() ==
          R"(the order leaves out "s"; it takes all transfers, each once)");
  REQUIRE_THROWS_AS(plan_with(items, {1, 1}, {1}), InternalError);
}

}  // namespace
}  // namespace aikido::ordering

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Simulated timelines: examples computed by hand, and invariants of every timeline.
#include "ordering/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "harness/catch.h"
#include "ordering/best_makespan.h"
#include "ordering/graphs.h"

namespace aikido::ordering {
namespace {

using testing::Builder;
using testing::op_named;

SimulateOptions options_of(const Graph& graph, LinkRule link,
                           const std::vector<std::string>& order = {}) {
  SimulateOptions options;
  options.link = link;
  for (const auto& name : order) options.order.push_back(op_named(graph, name));
  return options;
}

Timeline simulated(const Graph& graph, const SimulateOptions& options) {
  auto timeline = simulate(graph, options);
  if (!timeline) FAIL(timeline.status().message());
  return *timeline;
}

// "r0 0-2; c0 2-5 @0": a span per op, with its processor after the sign.
std::string text_of(const Graph& graph, const Timeline& timeline) {
  std::string text;
  for (const TimedOp& span : timeline.spans) {
    text += concat(text.empty() ? "" : "; ", graph.ops[span.op].name, ' ', span.begin_s,
                   '-', span.end_s);
    if (span.processor >= 0) text += concat(" @", span.processor);
  }
  return text;
}

// A backward pass from the last layer down, and the forward pass of the next iteration.
Graph iteration() {
  return Builder()
      .compute("b2", 1)
      .compute("b1", 1, {"b2"})
      .compute("b0", 1, {"b1"})
      .transfer("g2", 4, {"b2"})
      .transfer("g1", 2, {"b1"})
      .transfer("g0", 2, {"b0"})
      .compute("f0", 1, {"b0", "g0"})
      .compute("f1", 1, {"f0", "g1"})
      .compute("f2", 1, {"f1", "g2"})
      .graph();
}

TEST_CASE("the example of TicTac: the order decides what overlaps") {
  const auto graph = testing::chain({2, 2}, {3, 3});
  const auto good =
      simulated(graph, options_of(graph, LinkRule::kInOrder, {"r0", "r1"}));
  REQUIRE(good.makespan_s == 8);
  REQUIRE(text_of(graph, good) == "r0 0-2; r1 2-4; c0 2-5 @0; c1 5-8 @0");
  const auto bad =
      simulated(graph, options_of(graph, LinkRule::kInOrder, {"r1", "r0"}));
  REQUIRE(bad.makespan_s == 10);
  REQUIRE(text_of(graph, bad) == "r1 0-2; r0 2-4; c0 4-7 @0; c1 7-10 @0");
  REQUIRE(bad.done_s == std::vector<double>{4, 2, 7, 10});
}

TEST_CASE("fifo sends what is ready first, so the first layer comes last") {
  const auto graph = iteration();
  const auto timeline = simulated(graph, options_of(graph, LinkRule::kFifo));
  REQUIRE(text_of(graph, timeline) ==
          "b2 0-1 @0; g2 1-5; b1 1-2 @0; b0 2-3 @0; g1 5-7; g0 7-9; f0 9-10 @0; "
          "f1 10-11 @0; f2 11-12 @0");
}

TEST_CASE(
    "a transfer that has begun is finished, or paused between chunks, or at once") {
  const auto graph = iteration();
  auto options = options_of(graph, LinkRule::kPriority, {"g0", "g1", "g2"});
  auto timeline = simulated(graph, options);
  REQUIRE(timeline.makespan_s == 11);
  REQUIRE(timeline.pauses == 0);
  options.chunk_bytes = 1.5e6;  // 1.5 s
  timeline = simulated(graph, options);
  REQUIRE(text_of(graph, timeline) ==
          "b2 0-1 @0; g2 1-2.5; b1 1-2 @0; b0 2-3 @0; g1 2.5-4; g0 4-6; g1 6-6.5; "
          "f0 6-7 @0; g2 6.5-9; f1 7-8 @0; f2 9-10 @0");
  REQUIRE(timeline.pauses == 2);
  options.link = LinkRule::kPreemptive;
  timeline = simulated(graph, options);
  REQUIRE(text_of(graph, timeline) ==
          "b2 0-1 @0; g2 1-2; b1 1-2 @0; g1 2-3; b0 2-3 @0; g0 3-5; g1 5-6; f0 5-6 @0; "
          "g2 6-9; f1 6-7 @0; f2 9-10 @0");
  REQUIRE(timeline.pauses == 2);
}

TEST_CASE("in order the link waits for the next of the order") {
  const auto graph = iteration();
  const auto timeline =
      simulated(graph, options_of(graph, LinkRule::kInOrder, {"g0", "g1", "g2"}));
  REQUIRE(timeline.makespan_s == 12);
  REQUIRE(timeline.done_s[op_named(graph, "g0")] == 5);
}

TEST_CASE("chunks of all sizes take the time of the whole") {
  const auto graph = testing::chain({5, 3}, {1, 1});
  for (const double chunk : {0.0, 1.0, 1e5, 7e5, 4e6, 1e9}) {
    if (chunk == 1.0) continue;  // five million turns
    auto options = options_of(graph, LinkRule::kPriority, {"r0", "r1"});
    options.chunk_bytes = chunk;
    const auto timeline = simulated(graph, options);
    CAPTURE(chunk);
    REQUIRE(std::abs(timeline.makespan_s - 9) < 1e-9);
    REQUIRE(timeline.spans.size() == 4);  // without pauses, chunks are one span
  }
}

TEST_CASE("eager computing waits in the order of the program") {
  const auto graph = testing::parallel({1, 1}, {2, 2});
  auto options = options_of(graph, LinkRule::kInOrder, {"r1", "r0"});
  REQUIRE(simulated(graph, options).makespan_s == 5);
  options.compute = ComputeRule::kProgram;
  const auto timeline = simulated(graph, options);
  REQUIRE(text_of(graph, timeline) == "r1 0-1; r0 1-2; c0 2-4 @0; c1 4-6 @0");
}

TEST_CASE("several processors compute at the same time") {
  const auto graph = testing::parallel({1, 1, 1}, {5, 5, 5});
  auto options = options_of(graph, LinkRule::kInOrder, {"r0", "r1", "r2"});
  options.processors = 2;
  REQUIRE(text_of(graph, simulated(graph, options)) ==
          "r0 0-1; r1 1-2; c0 1-6 @0; r2 2-3; c1 2-7 @1; c2 6-11 @0");
  options.compute = ComputeRule::kProgram;
  REQUIRE(simulated(graph, options).makespan_s == 11);
}

TEST_CASE("ops that take no time are done when they can begin") {
  const auto graph = Builder()
                         .transfer("r", 0)
                         .compute("c", 0, {"r"})
                         .transfer("s", 2, {"c"})
                         .compute("d", 1, {"s"})
                         .graph();
  for (const auto rule : {LinkRule::kFifo, LinkRule::kInOrder, LinkRule::kPriority,
                          LinkRule::kPreemptive})
    REQUIRE(text_of(graph, simulated(graph, options_of(graph, rule, {"r", "s"}))) ==
            "s 0-2; d 2-3 @0");
  REQUIRE(simulated(Graph{}, {}).makespan_s == 0);
}

TEST_CASE("an order that cannot be kept is refused with the names of both") {
  const auto graph = Builder()
                         .transfer("r", 1)
                         .compute("c", 1, {"r"})
                         .compute("d", 1)
                         .transfer("s", 1, {"c"})
                         .transfer("t", 1, {"d"})
                         .graph();
  auto options = options_of(graph, LinkRule::kInOrder, {"s", "r", "t"});
  REQUIRE(simulate(graph, options).status().message() ==
          R"(the order cannot be kept: "s" is next on the link and waits for "r", )"
          "which comes later");
  options = options_of(graph, LinkRule::kInOrder, {"t", "r", "s"});
  REQUIRE(simulate(graph, options).is_ok());
  // In program order d comes after c, which waits for r.
  options.compute = ComputeRule::kProgram;
  REQUIRE(simulate(graph, options).status().message() ==
          R"(the order cannot be kept: "t" is next on the link and waits for "r", )"
          "which comes later");
}

TEST_CASE("options that make no sense are refused") {
  const auto graph = testing::chain({1}, {1});
  auto options = options_of(graph, LinkRule::kInOrder);
  REQUIRE(
      simulate(graph, options).status().message().starts_with("the order leaves out"));
  options.order = {0};
  options.processors = 0;
  REQUIRE(simulate(graph, options).status().message() ==
          "there are 0 processors; it takes a number from 1 up");
  options.processors = 1;
  options.chunk_bytes = -1;
  REQUIRE(simulate(graph, options).status().message() ==
          "a chunk has -1 bytes; it takes a finite number from 0 up, and 0 is whole "
          "transfers");
  REQUIRE(simulate(Graph{{{}}, {}}, options).status().message() == "op 0 has no name");
}

TEST_CASE("rules are known by name") {
  REQUIRE(*link_rule_named("preemptive") == LinkRule::kPreemptive);
  REQUIRE(*compute_rule_named("program") == ComputeRule::kProgram);
  REQUIRE(link_rule_named("lifo").status().message() ==
          R"(the rule of the link is "lifo"; it takes fifo, in_order, priority, )"
          "preemptive");
  REQUIRE(compute_rule_named("lazy").status().message() ==
          R"(the rule of the computing is "lazy"; it takes when_ready, program)");
}

// Checks the invariants of every timeline, for any rules.
void check_timeline(const Graph& graph, const SimulateOptions& options) {
  const auto timeline = simulated(graph, options);
  const auto before = neighbours_of(graph).before;
  std::vector<double> taken(graph.ops.size()), begin(graph.ops.size(), 1e9);
  std::map<int, double> until;
  for (const TimedOp& span : timeline.spans) {
    REQUIRE(span.begin_s >= until[span.processor] - 1e-9);  // one op at a time
    until[span.processor] = span.end_s;
    taken[span.op] += span.end_s - span.begin_s;
    begin[span.op] = std::min(begin[span.op], span.begin_s);
    REQUIRE((span.processor < 0) == (graph.ops[span.op].kind == OpKind::kTransfer));
    REQUIRE(span.processor < options.processors);
  }
  double last = 0;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    REQUIRE(std::abs(taken[op] - graph.ops[op].time_s) < 1e-9);
    for (const size_t needed : before[op])
      REQUIRE(begin[op] >= timeline.done_s[needed] - 1e-9);
    last = std::max(last, timeline.done_s[op]);
  }
  REQUIRE(timeline.makespan_s == last);
}

SimulateOptions random_options(const Graph& graph, std::mt19937& dice) {
  SimulateOptions options;
  options.order = transfers_of(graph);
  std::shuffle(options.order.begin(), options.order.end(), dice);
  options.chunk_bytes = dice() % 2 == 0 ? 0 : 1.7e6;
  options.processors = 1 + static_cast<int>(dice() % 3);
  return options;
}

TEST_CASE("timelines of random graphs are possible under all rules") {
  std::mt19937 dice(17);
  for (int i = 0; i < 400; ++i) {
    CAPTURE(i);
    const size_t size = 1 + dice() % 6;
    const bool is_iteration = i % 2 == 0;
    const auto graph = is_iteration ? testing::random_iteration(dice, size)
                                    : testing::random_graph(dice, size);
    auto options = random_options(graph, dice);
    for (const auto rule : {LinkRule::kFifo, LinkRule::kInOrder, LinkRule::kPriority,
                            LinkRule::kPreemptive})
      for (const auto compute : {ComputeRule::kWhenReady, ComputeRule::kProgram}) {
        options.link = rule;
        options.compute = compute;
        check_timeline(graph, options);
      }
  }
}

// Time at which a transfer could begin.
double ready_s(const Graph& graph, const Timeline& timeline, size_t op) {
  double ready = 0;
  for (const Edge& edge : graph.edges)
    if (edge.to == op) ready = std::max(ready, timeline.done_s[edge.from]);
  return ready;
}

TEST_CASE("no transfer starts while an earlier transfer could") {
  std::mt19937 dice(43);
  size_t pauses = 0;
  for (int i = 0; i < 300; ++i) {
    const auto graph = testing::random_iteration(dice, 1 + dice() % 6);
    auto options = random_options(graph, dice);
    for (const auto rule : {LinkRule::kPriority, LinkRule::kPreemptive}) {
      options.link = rule;
      const auto timeline = simulated(graph, options);
      pauses += timeline.pauses;
      for (const TimedOp& span : timeline.spans)
        for (const size_t op : options.order) {
          if (op == span.op) break;  // only the transfers before it
          if (span.processor >= 0) break;
          CAPTURE(i, graph.ops[op].name, graph.ops[span.op].name, span.begin_s);
          const double ready = ready_s(graph, timeline, op);
          const bool is_done = timeline.done_s[op] <= span.begin_s;
          REQUIRE((is_done || ready > span.begin_s));
          if (rule == LinkRule::kPreemptive) REQUIRE((is_done || ready >= span.end_s));
        }
    }
  }
  REQUIRE(pauses > 100);
}

TEST_CASE("a link without an order sends the first ready transfer, and never idles") {
  std::mt19937 dice(47);
  for (int i = 0; i < 300; ++i) {
    CAPTURE(i);
    const auto graph = testing::random_iteration(dice, 1 + dice() % 6);
    const auto timeline = simulated(graph, options_of(graph, LinkRule::kFifo));
    double last_ready = 0, free = 0;
    for (const TimedOp& span : timeline.spans) {
      if (span.processor >= 0) continue;
      const double ready = ready_s(graph, timeline, span.op);
      REQUIRE(ready >= last_ready);
      REQUIRE(span.begin_s == std::max(free, ready));
      last_ready = ready;
      free = span.end_s;
    }
  }
}

TEST_CASE("without anything to wait for all rules that keep an order are one") {
  std::mt19937 dice(23);
  for (int i = 0; i < 200; ++i) {
    const auto graph = testing::random_graph(dice, 1 + dice() % 6);
    SimulateOptions options;
    options.order = transfers_of(graph);
    std::shuffle(options.order.begin(), options.order.end(), dice);
    options.link = LinkRule::kInOrder;
    const double makespan = simulated(graph, options).makespan_s;
    for (const auto rule : {LinkRule::kPriority, LinkRule::kPreemptive}) {
      options.link = rule;
      REQUIRE(simulated(graph, options).makespan_s == makespan);
    }
    REQUIRE(makespan >= testing::best_makespan(graph));
  }
}

}  // namespace
}  // namespace aikido::ordering

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Valid graphs, and the errors of invalid graphs.
#include "ordering/graph.h"

#include <limits>

#include "harness/catch.h"
#include "ordering/graphs.h"

namespace aikido::ordering {
namespace {

using testing::Builder;
using testing::names_of;
using Names = std::vector<std::string>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Op compute(std::string name, double time_s = 1, double bytes = 0) {
  return {std::move(name), OpKind::kCompute, time_s, bytes};
}
Op transfer(std::string name, double time_s = 1, double bytes = 1) {
  return {std::move(name), OpKind::kTransfer, time_s, bytes};
}

std::string refusal(std::vector<Op> ops,
                    const std::vector<std::pair<std::string, std::string>>& edges) {
  const auto graph = make_graph(std::move(ops), edges);
  REQUIRE(!graph.is_ok());
  REQUIRE(graph.status().code() == Code::kInvalidArgument);
  return graph.status().message();
}

TEST_CASE("a graph of no ops is valid") {
  REQUIRE(validate(Graph{}).is_ok());
}

TEST_CASE("a graph that makes no sense is refused with the name of the op") {
  REQUIRE(refusal({compute("")}, {}) == "op 0 has no name");
  REQUIRE(refusal({compute("a"), transfer("a")}, {}) == R"(two ops have the name "a")");
  REQUIRE(refusal({compute("a", -1)}, {}) ==
          R"(the time of op "a" is -1 s; it takes a finite number from 0 up)");
  REQUIRE(refusal({transfer("a", std::numeric_limits<double>::quiet_NaN())}, {}) ==
          R"(the time of op "a" is nan s; it takes a finite number from 0 up)");
  REQUIRE(refusal({transfer("a", 1, kInfinity)}, {}) ==
          R"(op "a" moves inf bytes; it takes a finite number from 0 up)");
  REQUIRE(refusal({compute("a", 1, 5)}, {}) ==
          R"(op "a" computes and moves 5 bytes; only transfers move any)");
  REQUIRE(refusal({compute("a")}, {{"a", "b"}}) ==
          R"(an edge goes from "a" to "b", and there is no op "b")");
  REQUIRE(refusal({compute("a")}, {{"a", "a"}}) == R"(op "a" needs itself)");
  REQUIRE(validate(Graph{{compute("a")}, {{0, 3}}}).message() ==
          "an edge goes from op 0 to op 3, and there are 1 ops, from 0 on");
}

TEST_CASE("the ops of a cycle are named in its order") {
  REQUIRE(refusal({compute("a"), compute("b"), compute("c"), compute("d")},
                  {{"a", "b"}, {"b", "c"}, {"c", "d"}, {"d", "b"}}) ==
          R"(ops need each other in a cycle: "c" -> "d" -> "b" -> "c")");
  std::vector<Op> many;
  std::vector<std::pair<std::string, std::string>> edges;
  for (size_t i = 0; i < 9; ++i) {
    many.push_back(compute(testing::numbered("x", i)));
    edges.emplace_back(testing::numbered("x", i), testing::numbered("x", (i + 1) % 9));
  }
  REQUIRE(refusal(many, edges).find(R"("x6" -> ... -> )") != std::string::npos);
}

TEST_CASE("names in a sentence are printable and not endless") {
  REQUIRE(refusal({compute("a\n\x01", -1)}, {}).find("a\n?") != std::string::npos);
  REQUIRE(refusal({compute(std::string(99, 'x'), -1)}, {}).size() < 160);
}

TEST_CASE("an edge that is given twice counts once") {
  const auto graph = make_graph({compute("a"), compute("b")}, {{"a", "b"}, {"a", "b"}});
  REQUIRE(graph.is_ok());
}

TEST_CASE("transfers take the times of the link") {
  const auto graph =
      with_link(Builder().transfer("r", 7).compute("c", 3, {"r"}).graph(),
                cost::LinkCost{0.5, 1e-6});
  REQUIRE(graph.ops[0].time_s == 0.5 + 7e6 * 1e-6);
  REQUIRE(graph.ops[1].time_s == 3);
}

TEST_CASE("the program order keeps the list where it can") {
  const auto graph = Builder()
                         .compute("late", 1, {"r2", "early"})
                         .transfer("r1", 1)
                         .transfer("r2", 1)
                         .compute("early", 1, {"r1"})
                         .graph();
  REQUIRE(names_of(graph, program_order(graph)) == Names{"r1", "r2", "early", "late"});
  REQUIRE(names_of(graph, transfers_of(graph)) == Names{"r1", "r2"});
  REQUIRE(first_uses(graph) == std::vector<size_t>{2, 3});
}

TEST_CASE("a transfer that nothing uses is used last") {
  const auto graph = Builder().transfer("r", 1).compute("c", 1).graph();
  REQUIRE(first_uses(graph) == std::vector<size_t>{2});
}

TEST_CASE("an order has each transfer once") {
  const auto graph =
      Builder().transfer("r1", 1).compute("c", 1).transfer("r2", 1).graph();
  REQUIRE(check_order(graph, {2, 0}).is_ok());
  REQUIRE(check_order(graph, {2, 9}).message() ==
          "the order has op 9, and there are 3 ops, from 0 on");
  REQUIRE(check_order(graph, {0, 1}).message() ==
          R"(the order has "c", which is no transfer)");
  REQUIRE(check_order(graph, {0, 0}).message() == R"(the order has "r1" twice)");
  REQUIRE(check_order(graph, {0}).message() ==
          R"(the order leaves out "r2"; it takes all transfers, each once)");
}

}  // namespace
}  // namespace aikido::ordering

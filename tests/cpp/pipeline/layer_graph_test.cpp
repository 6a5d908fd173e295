// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/layer_graph.h"

#include "harness/catch.h"

namespace aikido::pipeline {
namespace {

Profile diamond() {
  Profile profile;
  for (const char* id : {"a", "b", "c", "d"})
    profile.layers.push_back({id, "Linear", 1, 2, 10, 5, -1});
  profile.edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  return profile;
}

TEST_CASE("a layer knows its dependencies and its users") {
  const LayerGraph graph(diamond());
  CHECK(graph.needs[3] == std::vector<size_t>{1, 2});
  CHECK(graph.needed_by[0] == std::vector<size_t>{1, 2});
  CHECK(graph.is_source(0));
  CHECK(graph.is_sink(3));
  CHECK_FALSE(graph.is_sink(1));
}

TEST_CASE("a dropped layer is in no edge and in no order") {
  LayerGraph graph(diamond());
  graph.drop(1);
  CHECK_FALSE(graph.is_kept[1]);
  CHECK(graph.needs[3] == std::vector<size_t>{2});
  CHECK(graph.needed_by[0] == std::vector<size_t>{2});
  CHECK(graph.in_order() == std::vector<size_t>{0, 2, 3});
}

}  // namespace
}  // namespace aikido::pipeline

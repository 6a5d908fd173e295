// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/branches.h"

#include <algorithm>

#include "harness/catch.h"
#include "pipeline/profiles.h"

namespace aikido::pipeline {
namespace {

Profile profile_of(size_t count, std::vector<Edge> edges) {
  Profile profile;
  for (size_t i = 0; i < count; ++i)
    profile.layers.push_back({concat("layer", i), "Linear", 1, 2, 10, 5, -1});
  profile.edges = std::move(edges);
  return profile;
}

TEST_CASE("a branch is joined from a fork to the last layer before a meeting") {
  // Layer 0 forks to 1-2 and 3-4-5. The branches meet at 6. Layers 7 and 8 follow in a
  // row.
  const Profile profile = profile_of(
      9, {{0, 1}, {1, 2}, {0, 3}, {3, 4}, {4, 5}, {2, 6}, {5, 6}, {6, 7}, {7, 8}});
  const LayerGraph graph(profile);
  CHECK(join_branches(graph, each_alone(graph)) == Groups{0, 1, 1, 3, 3, 3, 6, 7, 8});
}

TEST_CASE("a branch that forks again ends there, with the layer that forks") {
  const Profile profile =
      profile_of(7, {{0, 1}, {0, 2}, {1, 3}, {3, 4}, {3, 5}, {4, 6}, {5, 6}, {2, 6}});
  const LayerGraph graph(profile);
  CHECK(join_branches(graph, each_alone(graph)) == Groups{0, 1, 2, 1, 4, 5, 6});
}

TEST_CASE("layers in a row are joined from each of several sources, not from one") {
  const LayerGraph chain(profile_of(3, {{0, 1}, {1, 2}}));
  CHECK(join_branches(chain, each_alone(chain)) == Groups{0, 1, 2});
  const LayerGraph towers(profile_of(5, {{0, 1}, {2, 3}, {1, 4}, {3, 4}}));
  CHECK(join_branches(towers, each_alone(towers)) == Groups{0, 0, 2, 2, 4});
}

TEST_CASE("branches go with the layer where they meet, a row of layers does not") {
  const LayerGraph graph(profile_of(5, {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 4}}));
  const Groups joined = join_meetings(graph, each_alone(graph));
  CHECK(joined == Groups{0, 3, 3, 3, 4});
  CHECK(join_meetings(graph, joined) == joined);
}

TEST_CASE("layers that take no time go with a neighbour") {
  // Layer 1 has only one user, the layer behind it. Layer 3 has no user. Layer 5 is a
  // source.
  Profile profile = profile_of(7, {{0, 1}, {1, 2}, {2, 3}, {2, 4}, {5, 4}, {2, 6}});
  for (const size_t i : {1u, 3u, 5u}) {
    Layer& layer = profile.layers[i];
    layer.forward_ms = layer.backward_ms = layer.parameter_bytes = 0;
  }
  const LayerGraph graph(profile);
  CHECK(join_free_layers(profile, graph, each_alone(graph)) ==
        Groups{0, 0, 2, 2, 4, 4, 6});
}

TEST_CASE("groups never need each other in a cycle") {
  std::mt19937 dice(1);
  for (int i = 0; i < 500; ++i) {
    const Profile profile = testing::random_dag(dice, 2 + dice() % 30);
    const LayerGraph graph(profile);
    Groups groups = join_free_layers(profile, graph, each_alone(graph));
    for (int step = 0; step < 4; ++step) {
      groups = join_meetings(graph, join_branches(graph, groups));
      const LayerGraph joined = graph_of(graph, groups);
      const auto kept = std::count(joined.is_kept.begin(), joined.is_kept.end(), true);
      CHECK(joined.in_order().size() == static_cast<size_t>(kept));
    }
  }
}

}  // namespace
}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Profiles for tests: published profiles (tests/data/pipedream) and random profiles.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "base/check.h"
#include "base/text.h"
#include "pipeline/profile.h"

namespace aikido::pipeline::testing {

inline Profile published(const std::string& name) {
  std::ifstream file(concat(AIKIDO_TEST_DATA, "/pipedream/", name, ".txt"));
  AIKIDO_CHECK(file.good(), "no profile ", name, " in ", AIKIDO_TEST_DATA);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  auto profile = parse_profile(text);
  AIKIDO_CHECK(profile.is_ok(), profile.status().message());
  return *profile;
}

// Whole numbers, so that sums are exact in any order.
inline Layer random_layer(std::mt19937& dice, size_t number) {
  const auto draw = [&](uint32_t most) { return static_cast<double>(dice() % most); };
  return {concat("layer", number),
          "Linear",
          draw(40),
          draw(60),
          draw(100) * 1000,
          dice() % 3 == 0 ? 0 : draw(90) * 1000,
          -1};
}

inline Profile random_chain(std::mt19937& dice, size_t length) {
  Profile profile;
  for (size_t i = 0; i < length; ++i) {
    profile.layers.push_back(random_layer(dice, i));
    if (i > 0) profile.edges.push_back({i - 1, i});
  }
  return profile;
}

// A connected graph. About one in four layers begins at a source of its own.
inline Profile random_graph(std::mt19937& dice, size_t size) {
  Profile profile = random_chain(dice, size);
  profile.edges.clear();
  for (size_t i = 1; i < size; ++i) {
    const bool is_source = i + 1 < size && dice() % 8 == 0;
    for (size_t k = 0; k < i; ++k)
      if (!is_source && dice() % i < 2) profile.edges.push_back({k, i});
    const bool has_none = profile.edges.empty() || profile.edges.back().to != i;
    if (!is_source && has_none) profile.edges.push_back({dice() % i, i});
  }
  // One last layer joins the parts that are not connected.
  const size_t last = size;
  profile.layers.push_back(random_layer(dice, last));
  for (size_t i = 0; i < last; ++i) {
    const bool is_needed =
        std::any_of(profile.edges.begin(), profile.edges.end(),
                    [&](const Edge& edge) { return edge.from == i; });
    if (!is_needed) profile.edges.push_back({i, last});
  }
  return profile;
}

// Any acyclic graph: several sources and sinks, layers without time, and separate
// parts.
inline Profile random_dag(std::mt19937& dice, size_t size) {
  Profile profile = random_chain(dice, size);
  profile.edges.clear();
  const uint32_t density = 1 + dice() % 4;
  for (size_t to = 1; to < size; ++to)
    for (size_t from = 0; from < to; ++from)
      if (dice() % 4 < density && dice() % 2 == 0) profile.edges.push_back({from, to});
  for (Layer& layer : profile.layers)
    if (dice() % 5 == 0) layer.forward_ms = layer.backward_ms = 0;
  return profile;
}

}  // namespace aikido::pipeline::testing

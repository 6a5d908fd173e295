// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/layer_set.h"

#include "harness/catch.h"

namespace aikido::pipeline {
namespace {

LayerSet set_of(std::vector<size_t> layers) {
  LayerSet set(130);
  for (const size_t layer : layers) set.insert(layer);
  return set;
}

std::vector<size_t> members(const LayerSet& set) {
  std::vector<size_t> found;
  set.for_each([&](size_t layer) { found.push_back(layer); });
  return found;
}

TEST_CASE("a set of layers contains the added layers, over several words") {
  const LayerSet set = set_of({129, 0, 63, 64});
  CHECK(members(set) == std::vector<size_t>{0, 63, 64, 129});
  CHECK(set.count() == 4);
  CHECK(set.contains(129));
  CHECK_FALSE(set.contains(128));
  CHECK(members(LayerSet(0)).empty());
}

TEST_CASE("sets of layers are added, taken away and compared") {
  LayerSet set = set_of({1, 64});
  CHECK(set_of({1, 64, 100}).contains(set));
  CHECK(set.contains(set));
  CHECK_FALSE(set.contains(set_of({1, 100})));
  set.add(set_of({100}));
  CHECK(set == set_of({1, 64, 100}));
  CHECK(set.hash() == set_of({1, 64, 100}).hash());
  CHECK(set.hash() != set_of({1, 64, 101}).hash());
  set.remove(set_of({64, 128}));
  CHECK(set == set_of({1, 100}));
  CHECK(set_of({1}) < set);
  CHECK(set_of({100}) < set);
  CHECK_FALSE(set < set_of({100}));
}

}  // namespace
}  // namespace aikido::pipeline

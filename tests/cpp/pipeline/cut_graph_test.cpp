// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/cut_graph.h"

#include "harness/catch.h"
#include "pipeline/profiles.h"

namespace aikido::pipeline {
namespace {

// Options of the published optimizer.
CutOptions from_first(size_t max_cuts = 5000) {
  CutOptions options;
  options.rule = CutRule::kFromFirstSource;
  options.max_cuts = max_cuts;
  return options;
}

CutOptions all(size_t max_cuts = 5000) {
  CutOptions options;
  options.max_cuts = max_cuts;
  return options;
}

CutGraph cuts_of(const Profile& profile, CutOptions options = from_first()) {
  auto made = CutGraph::make(profile, options);
  INFO(made.status().message());
  REQUIRE(made.is_ok());
  return *made;
}

std::string failure_of(const Profile& profile, CutOptions options = from_first()) {
  const auto made = CutGraph::make(profile, options);
  REQUIRE_FALSE(made.is_ok());
  CHECK(made.status().code() == Code::kInvalidArgument);
  return made.status().message();
}

std::vector<size_t> members(const LayerSet& set) {
  std::vector<size_t> found;
  set.for_each([&](size_t layer) { found.push_back(layer); });
  return found;
}

// Sizes of outputs are 1, 10, 100, ...
Profile profile_of(size_t count, std::vector<Edge> edges) {
  Profile profile;
  double bytes = 1;
  for (size_t i = 0; i < count; ++i, bytes *= 10)
    profile.layers.push_back(
        {std::string(1, static_cast<char>('a' + i)), "Linear", 1, 2, bytes, 5, -1});
  profile.edges = std::move(edges);
  return profile;
}

TEST_CASE(
    "published profiles have as many cuts as the published optimizer has states") {
  CHECK(cuts_of(testing::published("vgg16")).size() == 40);
  CHECK(cuts_of(testing::published("alexnet")).size() == 22);
  CHECK(cuts_of(testing::published("resnet50")).size() == 240);
  CHECK(cuts_of(testing::published("gnmt")).size() == 99);
  CHECK(cuts_of(testing::published("gnmt_large")).size() == 1495);
}

TEST_CASE("sums of published profiles are sums over their layers without inputs") {
  struct Row {
    const char* name;
    double compute_s, parameter_bytes;
  };
  const Row rows[] = {{"vgg16", .672535, 553430176},
                      {"alexnet", .085321, 244403360},
                      {"resnet50", .443419, 102228128},
                      {"gnmt", .089416, 775063808},
                      {"gnmt_large", .520453, 1110870272}};
  for (const Row& row : rows) {
    const CutGraph cuts = cuts_of(testing::published(row.name));
    const LayerCut& whole = cuts[cuts.size() - 1];
    CHECK(whole.compute_s == Approx(row.compute_s).epsilon(1e-9));
    CHECK(whole.parameter_bytes == row.parameter_bytes);
  }
}

TEST_CASE("a diamond is cut before, beside and after its branches") {
  const CutGraph cuts = cuts_of(profile_of(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
  REQUIRE(cuts.size() == 5);
  CHECK(members(cuts[0].layers) == std::vector<size_t>{0});
  CHECK(members(cuts[1].layers) == std::vector<size_t>{0, 1});
  CHECK(members(cuts[2].layers) == std::vector<size_t>{0, 2});
  CHECK(members(cuts[3].layers) == std::vector<size_t>{0, 1, 2});
  CHECK(members(cuts[4].layers) == std::vector<size_t>{0, 1, 2, 3});
  const auto before = cuts.before(3);
  CHECK(std::vector<uint32_t>(before.begin(), before.end()) ==
        std::vector<uint32_t>{0, 1, 2});
  CHECK(cuts.before(2).size() == 1);  // a branch is not before the other branch
  CHECK(cuts.depth(0) == 1);
  CHECK(cuts.depth(2) == 2);
  CHECK(cuts.depth(4) == 4);
  CHECK(cuts[3].compute_s == Approx(.009));
  CHECK(cuts[3].activation_bytes == 111);
  CHECK(cuts[3].parameter_bytes == 15);
}

TEST_CASE(
    "outputs that cross a cut are needed after it; the published code counts more") {
  const CutGraph cuts = cuts_of(profile_of(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
  CHECK(cuts[0].crossing_bytes == 1);
  CHECK(cuts[1].crossing_bytes == 11);
  CHECK(cuts[1].frontier_bytes == 11);
  CHECK(cuts[3].crossing_bytes == 110);
  CHECK(cuts[3].frontier_bytes == 111);  // with the output that both branches use
  CHECK(cuts[4].crossing_bytes == 0);
  CHECK(cuts[4].frontier_bytes == 1000);
}

TEST_CASE("a further source comes with the first layer that needs it") {
  // b is a source of its own, which c and d need.
  const CutGraph cuts = cuts_of(profile_of(4, {{0, 2}, {1, 2}, {1, 3}, {2, 3}}));
  REQUIRE(cuts.size() == 3);
  CHECK(members(cuts[0].layers) == std::vector<size_t>{0});
  CHECK(members(cuts[1].layers) == std::vector<size_t>{0, 1, 2});
  CHECK(cuts[1].crossing_bytes == 110);
}

TEST_CASE("inputs and items that nothing needs are no choice") {
  Profile profile = profile_of(5, {{0, 1}, {1, 2}, {1, 3}, {2, 4}});
  profile.layers[0].description = "Input0";
  profile.layers[3].description = "__getitem__(1)";
  const CutGraph cuts = cuts_of(profile);
  CHECK(cuts.size() == 3);
  CHECK(members(cuts[2].layers) == std::vector<size_t>{1, 2, 4});
  REQUIRE(cuts.attached().size() == 2);
  CHECK(cuts.attached()[0].layer == 0);
  CHECK(cuts.attached()[0].to == 0);
  CHECK(cuts.attached()[1].layer == 3);
  CHECK(cuts.attached()[1].to == 1);
}

TEST_CASE("profiles that cannot be cut are refused with the layers' names") {
  CHECK(failure_of({}) == "the profile is empty; it needs one layer at least");
  CHECK(failure_of(profile_of(4, {{0, 1}, {2, 3}})) ==
        "nothing connects the layers \"a\" and \"d\"; make a profile of each part");
  Profile inputs = profile_of(1, {});
  inputs.layers[0].description = "Input";
  CHECK(failure_of(inputs) ==
        "the profile has inputs and nothing else; it needs one layer that computes");
}

// Eight parallel layers between two others: 2^8 cuts, and the cut after the last layer.
Profile side_by_side() {
  Profile wide = profile_of(10, {});
  for (size_t i = 1; i <= 8; ++i) {
    wide.edges.push_back({0, i});
    wide.edges.push_back({i, 9});
  }
  return wide;
}

TEST_CASE("with too many cuts branches go with the layer where they meet") {
  CHECK(cuts_of(side_by_side()).size() == 257);
  CHECK(cuts_of(side_by_side(), from_first(257)).note() == "");
  const CutGraph joined = cuts_of(side_by_side(), from_first(256));
  REQUIRE(joined.size() == 2);
  CHECK(members(joined[0].layers) == std::vector<size_t>{0});
  CHECK(joined.note() ==
        "the layers can be cut in more than 256 ways; branches are joined with the "
        "layer where they meet, which leaves 2 ways, so a faster plan may exist");
}

TEST_CASE("each branch becomes one layer first, and keeps its cost") {
  // a forks to b-c and d-e, which meet in f: 3 x 3 cuts between a and f.
  const Profile profile =
      profile_of(6, {{0, 1}, {1, 2}, {0, 3}, {3, 4}, {2, 5}, {4, 5}});
  CHECK(cuts_of(profile).size() == 10);
  for (const CutOptions& options : {from_first(9), all(9)}) {
    const CutGraph joined = cuts_of(profile, options);
    REQUIRE(joined.size() == 5);
    CHECK(members(joined[1].layers) == std::vector<size_t>{0, 1, 2});
    CHECK(joined[1].crossing_bytes == 101);
    CHECK(joined[1].activation_bytes == 111);
    CHECK(joined[1].parameter_bytes == 15);
    CHECK(joined.note().find("each branch is joined to one layer") !=
          std::string::npos);
  }
}

TEST_CASE("every set with all dependencies of its layers is a cut, for any sources") {
  // b is a source of its own, which c and d need.
  const CutGraph cuts = cuts_of(profile_of(4, {{0, 2}, {1, 2}, {1, 3}, {2, 3}}), all());
  REQUIRE(cuts.size() == 5);
  CHECK(members(cuts[0].layers) == std::vector<size_t>{0});
  CHECK(members(cuts[1].layers) == std::vector<size_t>{1});
  CHECK(members(cuts[2].layers) == std::vector<size_t>{0, 1});
  CHECK(cuts_of(profile_of(4, {{0, 1}, {2, 3}}), all()).size() == 8);
}

TEST_CASE("with several sources, layers that take no time are joined first") {
  const CutGraph cuts = cuts_of(testing::published("gnmt_large"), all());
  CHECK(cuts.size() < 1000);
  CHECK(cuts.note().find("layers that take no time") != std::string::npos);
  const LayerCut& whole = cuts[cuts.size() - 1];
  CHECK(whole.compute_s == Approx(.520453).epsilon(1e-9));
  CHECK(whole.parameter_bytes == 1110870272);
  CHECK(cuts_of(testing::published("gnmt"), all()).note() == "");
}

TEST_CASE("too many cuts are refused with a remedy") {
  CHECK(failure_of(profile_of(4, {{0, 1}, {1, 2}, {2, 3}}), from_first(3)) ==
        "the layers can be cut in more than 3 ways, even with each branch as one "
        "layer; profile layers that belong together as one, raise max_cuts");
  Profile chain = profile_of(4, {{0, 1}, {1, 2}, {2, 3}});
  chain.layers[2].forward_ms = chain.layers[2].backward_ms = 0;
  chain.layers[2].parameter_bytes = 0;
  CHECK(failure_of(chain, all(3)).find("in more than 3 ways") != std::string::npos);
  CHECK(failure_of(testing::published("vgg16"), all(39)).find("more than 39 ways") !=
        std::string::npos);
  Profile towers = profile_of(20, {});
  for (size_t i = 0; i < 19; ++i) towers.edges.push_back({i, 19});
  CHECK(failure_of(towers, all()) ==
        "the layers can be cut in more than 5000 ways, even with each branch as one "
        "layer; profile layers that belong together as one, raise max_cuts, or take "
        "cost model published_code, which keeps the 19 sources together");
}

}  // namespace
}  // namespace aikido::pipeline

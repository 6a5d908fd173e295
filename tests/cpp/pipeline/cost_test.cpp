// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/cost.h"

#include "harness/catch.h"

namespace aikido::pipeline {
namespace {

const Level kLevel{4, 1000, 2, 2};

LayerCut cut_with(double crossing, double frontier) {
  LayerCut cut;
  cut.crossing_bytes = crossing;
  cut.frontier_bytes = frontier;
  return cut;
}

TEST_CASE("cost models have names") {
  for (const auto model : {CostModel::kPaper, CostModel::kPublishedCode})
    CHECK(*cost_model_named(name_of(model)) == model);
  CHECK(cost_model_named("papers\n").status().message() ==
        "the cost model is \"papers\n\"; it takes \"paper\" or \"published_code\"");
}

TEST_CASE(
    "in the paper each replica sends and gets all but its part of the gradients") {
  const Cost cost(CostModel::kPaper, true);
  CHECK(cost.sync_s(6000, 1, kLevel, true) == 0);
  CHECK(cost.sync_s(6000, 3, kLevel, true) == Approx(8));
  CHECK(cost.stage_s(9, 8, 3) == Approx(3));
  CHECK(cost.stage_s(7, 8, 4) == Approx(2));
}

TEST_CASE("the published code counts that twice, and after computing") {
  const Cost cost(CostModel::kPublishedCode, true);
  CHECK(cost.sync_s(6000, 3, kLevel, false) == Approx(16));
  CHECK(cost.sync_s(6000, 3, kLevel, true) == Approx(8));  // two machines below
  CHECK(cost.stage_s(7, 8, 3) == Approx(5));
}

TEST_CASE("in the paper a transfer is the bytes that cross the cut, both ways") {
  const Cost cost(CostModel::kPaper, true);
  CHECK(cost.transfer_s(cut_with(500, 900), cut_with(800, 0), false, 2, kLevel) ==
        Approx(1));
  CHECK(Cost(CostModel::kPaper, false)
            .transfer_s(cut_with(500, 900), cut_with(800, 0), false, 2, kLevel) == 0);
}

TEST_CASE("the published code shares transfers among replicas and sees both ends") {
  const Cost cost(CostModel::kPublishedCode, true);
  const LayerCut from = cut_with(0, 500), to = cut_with(0, 800);
  CHECK(cost.transfer_s(from, to, false, 2, kLevel) == Approx(.8));
  CHECK(cost.transfer_s(from, to, true, 2, kLevel) == Approx(.5));
}

TEST_CASE("a load counts machines after each of one's own") {
  const Load outer = Load{}.inside(3, 2, kLevel);  // 3 components of 2 for 2 replicas
  CHECK(outer == Load{3, 1});
  const Level lowest{2, 1, 1, 1};
  const Load inner = outer.inside(1, 3, lowest);  // (1 + 3) / 3
  CHECK(inner == Load{4, 3});
  const Cost cost(CostModel::kPaper, true);
  CHECK(cost.versions(Load{}) == 1);
  CHECK(cost.versions(outer) == 4);
  CHECK(cost.versions(inner) == 3);
}

TEST_CASE("waiting versions are those of later stages, shared among replicas") {
  const Cost cost(CostModel::kPublishedCode, true);
  CHECK(cost.versions(0, 3) == 0);
  CHECK(cost.versions(4, 3) == 2);
}

}  // namespace
}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/partition.h"

#include <algorithm>
#include <cmath>

#include "harness/catch.h"
#include "pipeline/profiles.h"

namespace aikido::pipeline {
namespace {

using testing::published;

PartitionOptions flat(int machines, double bandwidth,
                      CostModel model = CostModel::kPublishedCode) {
  PartitionOptions options;
  options.machines = {machines};
  options.bandwidths = {bandwidth};
  options.model = model;
  return options;
}

Plan plan_of(const Profile& profile, const PartitionOptions& options) {
  auto plan = partition(profile, options);
  INFO(plan.status().message());
  REQUIRE(plan.is_ok());
  return *plan;
}

std::string failure_of(const Profile& profile, const PartitionOptions& options) {
  const auto plan = partition(profile, options);
  REQUIRE_FALSE(plan.is_ok());
  CHECK(plan.status().code() == Code::kInvalidArgument);
  return plan.status().message();
}

bool is_close(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::abs(b);
}

// Objectives that the published optimizer prints, without and with transfers.
struct Golden {
  const char* model;
  std::vector<int> machines;
  std::vector<double> bandwidths;
  double free_transfers, with_transfers;
};

const Golden kGolden[] = {
    {"vgg16", {2}, {1e9}, .370931, .411041792},
    {"vgg16", {3}, {1e9}, .231234, .264060952},
    {"vgg16", {4}, {1e9}, .175732624, .205520896},
    {"vgg16", {8}, {1e9}, .09351323, .1038331702857},
    {"alexnet", {2}, {1e9}, .043075, .066453504},
    {"alexnet", {3}, {1e9}, .031069, .048032784},
    {"alexnet", {4}, {1e9}, .023165752, .0342171413333},
    {"alexnet", {8}, {1e9}, .01162, .018874368},
    {"vgg16", {8}, {1.25e9}, .093357134, .1008413934},
    {"vgg16", {16}, {1.25e9}, .0465874887, .0547948908},
    {"vgg16", {4, 4}, {10e9, 1.25e9}, .0441210743, .0671339969},
    {"vgg16", {8, 2}, {30e9, 3.125e9}, .046381551, .0657666867},
    {"alexnet", {8}, {1.25e9}, .01162, .0150994944},
    {"alexnet", {16}, {1.25e9}, .0070595952, .0150994944},
    {"alexnet", {4, 4}, {10e9, 1.25e9}, .0060111784, .0150994944},
    {"alexnet", {8, 2}, {30e9, 3.125e9}, .005506, .0096825656},
};

TEST_CASE("objectives equal those of the published optimizer") {
  for (const Golden& golden : kGolden) {
    CAPTURE(golden.model, golden.machines, golden.bandwidths);
    const Profile profile = published(golden.model);
    PartitionOptions options = flat(1, 1);
    options.machines = golden.machines;
    options.bandwidths = golden.bandwidths;
    CHECK(is_close(plan_of(profile, options).period_s, golden.with_transfers));
    options.count_transfers = false;
    CHECK(is_close(plan_of(profile, options).period_s, golden.free_transfers));
  }
}

TEST_CASE("data parallelism is estimated as the published optimizer does") {
  const auto estimate = [](const char* model, std::vector<int> machines,
                           std::vector<double> bandwidths) {
    PartitionOptions options = flat(1, 1);
    options.machines = std::move(machines);
    options.bandwidths = std::move(bandwidths);
    return plan_of(published(model), options).data_parallel_s;
  };
  CHECK(is_close(estimate("vgg16", {4}, {1e9}), .583206382));
  CHECK(is_close(estimate("alexnet", {4}, {1e9}), .20463277));
  CHECK(is_close(estimate("vgg16", {8}, {1.25e9}), .2777674366));
  CHECK(is_close(estimate("vgg16", {16}, {1.25e9}), .1458015955));
  CHECK(is_close(estimate("vgg16", {4, 4}, {10e9, 1.25e9}), .1354247797));
  CHECK(is_close(estimate("vgg16", {8, 2}, {30e9, 3.125e9}), .068206072906667));
}

TEST_CASE("the published configurations come out") {
  struct Row {
    const char* model;
    int machines;
    double bandwidth;
    const char* text;
  };
  const Row rows[] = {{"vgg16", 4, 1e9, "3-1"},        {"vgg16", 8, 1.25e9, "7-1"},
                      {"alexnet", 4, 1e9, "3-1"},      {"alexnet", 8, 1.25e9, "7-1"},
                      {"alexnet", 16, 1.25e9, "15-1"}, {"vgg16", 4, 1e8, "1-2-1"},
                      {"vgg16", 4, 1e10, "3-1"},       {"vgg16", 4, 1e11, "3-1"}};
  for (const auto& [model, machines, bandwidth, text] : rows)
    CHECK(plan_of(published(model), flat(machines, bandwidth)).text == text);
}

TEST_CASE("bandwidth moves the objective of VGG16 as in the published optimizer") {
  const Profile profile = published("vgg16");
  CHECK(is_close(plan_of(profile, flat(4, 1e8)).period_s, .62212));
  CHECK(is_close(plan_of(profile, flat(4, 1e10)).period_s, .1701790624));
  CHECK(is_close(plan_of(profile, flat(4, 1e11)).period_s, .16962370624));
}

TEST_CASE("a straight pipeline of VGG16 is that of the published optimizer") {
  PartitionOptions options = flat(4, 1e9);
  options.straight = true;
  const Plan plan = plan_of(published("vgg16"), options);
  CHECK(is_close(plan.period_s, .411041792));
  CHECK(plan.text == "1-1-1-1");
  options.count_transfers = false;
  CHECK(is_close(plan_of(published("vgg16"), options).period_s, .21645));
}

TEST_CASE("with the paper's cost model computing and adding up overlap") {
  struct Row {
    const char* model;
    double free_transfers, with_transfers;
  };
  const Row rows[] = {{"vgg16", .169562, .205520896},
                      {"alexnet", .0219573333333333, .025436}};
  for (const Row& row : rows) {
    PartitionOptions options = flat(4, 1e9, CostModel::kPaper);
    const Plan plan = plan_of(published(row.model), options);
    CHECK(is_close(plan.period_s, row.with_transfers));
    CHECK(plan.text == "3-1");
    options.count_transfers = false;
    CHECK(
        is_close(plan_of(published(row.model), options).period_s, row.free_transfers));
  }
}

Profile three_layers() {
  return {{{"a", "Input", 5, 0, 1000, 0, -1},
           {"b", "Linear", 2, 4, 100, 30, -1},
           {"c", "Linear", 1, 2, 200, 60, -1},
           {"d", "__getitem__(1)", 0, 0, 7, 0, -1}},
          {{0, 1}, {1, 2}, {1, 3}}};
}

TEST_CASE("layers of several sources are cut in the fastest way, in any order") {
  const auto layer = [](const char* id, double ms, double bytes) {
    return Layer{id, "Linear", ms / 3, 2 * ms / 3, bytes, 1e9, -1};
  };
  const Layer x = layer("x", 10, 100e6), y = layer("y", 1, 1e3),
              z = layer("z", 10, 1e3), w = layer("w", 1, 1e3);
  const Profile one{{x, y, z, w}, {{0, 3}, {1, 2}, {2, 3}}};
  const Profile other{{y, z, x, w}, {{2, 3}, {0, 1}, {1, 3}}};
  for (const Profile& profile : {one, other}) {
    const Plan plan = plan_of(profile, flat(2, 1e9, CostModel::kPaper));
    CHECK(is_close(plan.period_s, .011));
    CHECK(plan.text == "1-1");
    CHECK(plan.stages[0].transfer_s == 0);
    CHECK(plan.stages[1].input_bytes == 1e3);
  }
}

TEST_CASE("a plan says what each stage costs") {
  Profile profile = three_layers();
  profile.layers[2].parameter_bytes = 6000;
  const Plan plan = plan_of(profile, flat(3, 1e5, CostModel::kPaper));
  REQUIRE(plan.text == "2-1");
  CHECK(plan.machines == 3);
  CHECK(plan.one_machine_s == Approx(.009));
  CHECK(plan.data_parallel_s == Approx(.0804 / 3));
  REQUIRE(plan.stages.size() == 2);
  const Stage& first = plan.stages[0];
  CHECK(first.layers == std::vector<size_t>{0, 1, 3});
  CHECK(first.replicas == std::vector<int>{2});
  CHECK(first.compute_s == Approx(.006));
  CHECK(first.sync_s == Approx(30 / 1e5));
  CHECK(first.period_s == Approx(.003));
  CHECK(first.transfer_s == 0);
  CHECK(first.versions == 2);
  CHECK(first.memory_bytes == 2 * 130);
  const Stage& second = plan.stages[1];
  CHECK(second.layers == std::vector<size_t>{2});
  CHECK(second.input_bytes == 100);
  CHECK(second.transfer_s == Approx(.002));
  CHECK(second.versions == 1);
  CHECK(second.memory_bytes == 6200);
  CHECK(plan.period_s == Approx(.003));

  const Profile staged = with_stages(three_layers(), plan);
  CHECK(staged.layers[2].stage == 1);
  CHECK(staged.layers[3].stage == 0);
}

TEST_CASE("layers of a stage follow their dependencies, then the profile's order") {
  Profile profile = three_layers();
  std::swap(profile.layers[0], profile.layers[2]);
  profile.edges = {{2, 1}, {1, 0}, {1, 3}};
  const Plan plan = plan_of(profile, flat(1, 1e9));
  CHECK(plan.stages[0].layers == std::vector<size_t>{2, 1, 0, 3});
}

TEST_CASE("replicas of two levels multiply, and later stages count in machines") {
  Profile profile = three_layers();
  profile.layers[1].parameter_bytes = profile.layers[2].parameter_bytes = 3000;
  PartitionOptions options = flat(2, 1e7, CostModel::kPaper);
  options.machines = {2, 3};
  options.bandwidths = {1e7, 1e6};
  const Plan plan = plan_of(profile, options);
  REQUIRE(plan.text == "2(2)-1(2)");
  CHECK(plan.machines == 6);
  CHECK(plan.stages[0].replicas == std::vector<int>{2, 2});
  CHECK(plan.stages[0].machines == 4);
  CHECK(plan.stages[0].period_s == Approx(.0015));
  // 3000 bytes between two machines at 1e7, then between two groups at 1e6.
  CHECK(plan.stages[0].sync_s == Approx(.0003 + .003));
  CHECK(plan.stages[0].versions ==
        2);  // six machines from this stage on, four of them its own
  CHECK(plan.stages[1].transfer_s == Approx(200 / 1e6));
}

TEST_CASE("the published code's memory is that of the level which keeps most") {
  PartitionOptions options = flat(1, 1e9);
  options.machines = {1, 2};
  options.bandwidths = {1e9, 1e9};
  options.straight = true;
  const Plan plan = plan_of(three_layers(), options);
  REQUIRE(plan.text == "1(1)-1(1)");
  CHECK(plan.stages[0].memory_bytes == 130);
  CHECK(plan.stages[1].memory_bytes == 0);
}

TEST_CASE("machines that do not help are left idle only if that is allowed") {
  PartitionOptions options = flat(8, 1e3, CostModel::kPaper);
  const Plan all = plan_of(three_layers(), options);
  CHECK(all.machines == 8);
  options.fewer_machines = true;
  const Plan few = plan_of(three_layers(), options);
  CHECK(few.machines == 1);
  CHECK(few.period_s < all.period_s);
}

TEST_CASE("options that make no sense are refused with both values") {
  const Profile profile = three_layers();
  PartitionOptions options = flat(2, 0);
  CHECK(failure_of(profile, options) ==
        "the bandwidth of level 1 is 0 bytes a second; it takes a finite number above "
        "0");
  options = flat(0, 1e9);
  CHECK(failure_of(profile, options) == "level 1 has 0 machines; it takes 1 to 1024");
  options = flat(2, 1e9);
  options.machines.push_back(2);
  CHECK(failure_of(profile, options) ==
        "there are 2 numbers of machines and 1 bandwidths; each level takes one of "
        "both");
  options = flat(2, 1e9);
  options.machines = {};
  options.bandwidths = {};
  CHECK(failure_of(profile, options) ==
        "no machines are given; name their number and bandwidth");
  options = flat(1024, 1e9);
  options.machines = {1024, 1024, 2};
  options.bandwidths = {1, 1, 1};
  CHECK(failure_of(profile, options).find("the levels make 2097152 machines") == 0);
  options = flat(2, 1e9);
  options.memory_bytes = -1;
  CHECK(failure_of(profile, options) ==
        "the memory of a machine is -1 bytes; it takes a finite number above 0");
  options = flat(2, 1e9);
  options.max_cuts = 0;
  CHECK(failure_of(profile, options) == "max_cuts is 0; it takes 1 or more, as 5000");
}

TEST_CASE("more stages than layers are refused, unless machines may be idle") {
  PartitionOptions options = flat(4, 1e9);
  options.straight = true;
  CHECK(failure_of(three_layers(), options) ==
        "a straight pipeline over 4 machines has 4 stages, but the layers can be cut "
        "into at most 2; allow replicas or fewer machines");
  options.fewer_machines = true;
  CHECK(plan_of(three_layers(), options).text == "1-1");
}

TEST_CASE(
    "if no plan fits into the memory, the error names the smallest plan and its "
    "largest stage") {
  PartitionOptions options = flat(2, 1e5, CostModel::kPaper);
  options.memory_bytes = 259;
  // Two stages: two versions of 130 bytes, one version of 260. One stage: one version
  // of 390.
  CHECK(failure_of(three_layers(), options) ==
        "no plan fits into 259 bytes on each machine; the smallest needs 260 bytes: "
        "1-1, whose largest stage is 0, layers \"a\" to \"d\"");
  options.memory_bytes = 260;
  CHECK(plan_of(three_layers(), options).text == "1-1");
  options.memory_bytes = 390;
  CHECK(plan_of(three_layers(), options).text == "2");
}

}  // namespace
}  // namespace aikido::pipeline

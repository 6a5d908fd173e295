// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The partitioner, compared with a search over all plans, on small random profiles.
#include "pipeline/solver.h"

#include <algorithm>
#include <numeric>

#include "harness/catch.h"
#include "pipeline/brute_force.h"
#include "pipeline/partition.h"
#include "pipeline/profiles.h"

namespace aikido::pipeline {
namespace {

using testing::BruteForce;

bool is_close(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::abs(b);
}

PartitionOptions random_options(std::mt19937& dice, std::vector<int> machines) {
  PartitionOptions options;
  for (const int count : machines) {
    options.machines.push_back(count);
    options.bandwidths.push_back(std::pow(10.0, 4.5 + static_cast<double>(dice() % 4)));
  }
  options.model = dice() % 2 == 0 ? CostModel::kPaper : CostModel::kPublishedCode;
  options.count_transfers = dice() % 3 > 0;
  options.straight = dice() % 4 == 0;
  options.fewer_machines = dice() % 3 == 0;
  return options;
}

// Checks the constraints of every plan. A plan with a single level is also checked in
// detail.
void check_plan(const Plan& plan, const Profile& profile,
                const PartitionOptions& options) {
  std::vector<size_t> layers;
  double slowest = 0;
  for (const Stage& stage : plan.stages) {
    layers.insert(layers.end(), stage.layers.begin(), stage.layers.end());
    slowest = std::max({slowest, stage.period_s, stage.transfer_s});
    if (options.straight) CHECK(stage.machines == 1);
    if (options.memory_bytes) CHECK(stage.memory_bytes <= *options.memory_bytes);
  }
  std::sort(layers.begin(), layers.end());
  CHECK(layers.size() == profile.layers.size());
  CHECK(std::unique(layers.begin(), layers.end()) == layers.end());
  if (options.machines.size() == 1) {
    CHECK(is_close(slowest, plan.period_s));
    CHECK(plan.machines <= options.machines[0]);
    CHECK((options.fewer_machines || plan.machines == options.machines[0]));
  }
}

void compare(const Profile& profile, PartitionOptions options, std::mt19937& dice) {
  CAPTURE(to_text(profile), options.machines, options.bandwidths,
          name_of(options.model), options.count_transfers, options.straight,
          options.fewer_machines);
  const BruteForce all(profile, options);
  if (all.num_plans() == 0) {
    const auto plan = partition(profile, options);
    REQUIRE_FALSE(plan.is_ok());
    CHECK(plan.status().message().find("a straight pipeline over") == 0);
    return;
  }
  if (dice() % 2 == 0) options.memory_bytes = all.memory_of(dice() % all.num_plans());
  if (options.memory_bytes == 0.0) options.memory_bytes.reset();
  const double limit = options.memory_bytes.value_or(0);
  CAPTURE(limit);
  auto plan = partition(profile, options);
  REQUIRE(plan.is_ok());
  CHECK(is_close(plan->period_s, BruteForce(profile, options).best()));
  check_plan(*plan, profile, options);

  const double least = all.least_memory();
  if (least < 2) return;
  options.memory_bytes = least;
  CHECK(partition(profile, options).is_ok());
  options.memory_bytes = least - 1;
  plan = partition(profile, options);
  REQUIRE_FALSE(plan.is_ok());
  CHECK(plan.status().message().starts_with(
      concat("no plan fits into ", static_cast<int64_t>(least - 1),
             " bytes on each machine; the smallest needs ", static_cast<int64_t>(least),
             " bytes: ")));
}

TEST_CASE("no plan for a chain is better, however it is cut") {
  std::mt19937 dice(1);
  for (int i = 0; i < 300; ++i) {
    const Profile profile = testing::random_chain(dice, 1 + dice() % 12);
    compare(profile, random_options(dice, {1 + static_cast<int>(dice() % 5)}), dice);
  }
}

TEST_CASE("no plan for a graph with branches is better") {
  std::mt19937 dice(2);
  for (int i = 0; i < 150; ++i) {
    const Profile profile = testing::random_graph(dice, 2 + dice() % 8);
    compare(profile, random_options(dice, {1 + static_cast<int>(dice() % 3)}), dice);
  }
}

// The same layers in another order. Each edge still joins the same two layers.
Profile shuffled(const Profile& profile, std::mt19937& dice) {
  std::vector<size_t> places(profile.layers.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::shuffle(places.begin(), places.end(), dice);
  Profile made = profile;
  for (size_t i = 0; i < places.size(); ++i) made.layers[places[i]] = profile.layers[i];
  for (Edge& edge : made.edges) edge = {places[edge.from], places[edge.to]};
  std::shuffle(made.edges.begin(), made.edges.end(), dice);
  return made;
}

TEST_CASE("no plan for a graph with several sources is better, in any order") {
  std::mt19937 dice(5);
  for (int i = 0; i < 2000; ++i) {
    const Profile profile = testing::random_dag(dice, 1 + dice() % 7);
    auto options = random_options(dice, {1 + static_cast<int>(dice() % 3)});
    options.model = CostModel::kPaper;
    compare(profile, options, dice);
    const auto plan = partition(profile, options);
    const auto same = partition(shuffled(profile, dice), options);
    REQUIRE(plan.is_ok() == same.is_ok());
    if (!plan.is_ok()) continue;
    auto one = plan, other = same;
    CHECK(one->period_s == other->period_s);
    CHECK(one->text == other->text);
    CHECK(one->note == "");
  }
}

TEST_CASE("no plan on two levels of machines is better") {
  std::mt19937 dice(3);
  for (int i = 0; i < 300; ++i) {
    const Profile profile = dice() % 2 == 0
                                ? testing::random_chain(dice, 1 + dice() % 6)
                                : testing::random_graph(dice, 2 + dice() % 4);
    const auto draw = [&] { return 1 + static_cast<int>(dice() % 3); };
    compare(profile, random_options(dice, {draw(), draw()}), dice);
  }
}

TEST_CASE("a group is cut only where its first layers are done") {
  // b and c are parallel. If a and b are one group, and c and d the other, the cut
  // after a and c is no cut of the second group: 12 - 2 ms and 2 + 8 ms would be no
  // stages of it.
  Profile profile;
  for (const double ms : {9, 2, 12, 8})
    profile.layers.push_back({concat("after ", ms), "Linear", ms, 0, 0, 0, -1});
  profile.edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  PartitionOptions options;
  options.machines = {2, 2};
  options.bandwidths = {1, 1};
  options.straight = true;
  auto plan = partition(profile, options);
  REQUIRE(plan.is_ok());
  CHECK(plan->text == "1(1-1)-1(1-1)");
  CHECK(plan->period_s == Approx(.012));
}

TEST_CASE("no plan on three levels of machines is better") {
  std::mt19937 dice(4);
  for (int i = 0; i < 200; ++i) {
    const Profile profile = testing::random_chain(dice, 1 + dice() % 5);
    const auto draw = [&] { return 1 + static_cast<int>(dice() % 2); };
    compare(profile, random_options(dice, {draw(), 2, draw()}), dice);
  }
}

}  // namespace
}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Times and messages of simulated steps. `test_reassign "[.table]" -s` prints tables.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <utility>

#include "harness/catch.h"
#include "reassign/simulation.h"

using namespace aikido;
using namespace aikido::reassign;
using namespace std::chrono_literals;

namespace {

constexpr size_t kFirstStep = 3;  // the speeds are known

World one_slow(int32_t num_ranks, uint32_t num_items, double slower) {
  World world;
  world.num_ranks = num_ranks;
  world.items_per_rank = num_items;
  world.num_steps = 30;
  world.jitter = 0.02;
  world.slowness = [slower](int32_t rank, uint64_t) {
    return rank == 1 ? 1 + slower : 1;
  };
  return world;
}

World moving(double slower) {
  World world = one_slow(8, 16, 0);
  world.num_steps = 200;
  world.slowness = [slower](int32_t rank, uint64_t step) {
    return static_cast<uint64_t>(rank) == step / 20 % 8 ? 1 + slower : 1;
  };
  return world;
}

// Each rank has some disruptors in each slot of `slot` steps; each makes it slower by
// 100 %. Their number has a power law: it is at least d with probability (d + 1)^-2.
World power_law(uint32_t num_items, uint64_t slot) {
  World world = one_slow(8, num_items, 0);
  world.num_steps = 200;
  world.slowness = [slot](int32_t rank, uint64_t step) {
    std::mt19937_64 random(static_cast<uint64_t>(rank) << 32 | step / slot);
    const double u = std::uniform_real_distribution<double>(0, 1)(random);
    return std::min(9.0, std::floor(1 / std::sqrt(1 - u)));
  };
  return world;
}

// Sequences with log-normal lengths. A cost that is the square of a length has sigma 2.
World log_normal(int32_t num_ranks, uint32_t num_items, uint32_t num_samples,
                 double sigma) {
  World world = one_slow(num_ranks, num_items, 0);
  world.num_steps = 200;
  world.samples_per_item = num_samples;
  world.cost_sigma = sigma;
  world.prediction_sigma = 0.3;
  world.is_partitioned = true;
  return world;
}

Verdict without(World world) {
  world.is_reassigning = false;
  return simulate(world);
}

double over_ideal(const World& world) {
  return mean_over_ideal(simulate(world), kFirstStep);
}

double per_rank_step(uint64_t total, const Verdict& verdict) {
  return static_cast<double>(total) / static_cast<double>(verdict.num_rank_steps);
}

void print_row(const std::string& name, const World& world) {
  const Verdict verdict = simulate(world);
  std::printf(
      "%-38s %8.3f %8.3f %8.3f %8.1f %8.1f %8.0f\n", name.c_str(),
      mean_over_ideal(without(world), kFirstStep),
      whole_over_ideal(verdict, kFirstStep), mean_over_ideal(verdict, kFirstStep),
      static_cast<double>(verdict.num_moved) / static_cast<double>(world.num_steps),
      per_rank_step(verdict.num_messages, verdict),
      per_rank_step(verdict.num_bytes, verdict));
}

}  // namespace

TEST_CASE("nothing moves if no rank is slow, and a step takes the same time") {
  for (const int32_t num_ranks : {4, 8})
    for (const uint32_t num_items : {8u, 16u, 32u}) {
      const World world = one_slow(num_ranks, num_items, 0);
      const Verdict verdict = simulate(world);
      CHECK(verdict.num_moved == 0);
      CHECK(mean_over_ideal(verdict, 0) <= 1.01 * mean_over_ideal(without(world), 0));
    }
}

TEST_CASE("a step with one slow rank takes at most 1.10 of the ideal time") {
  for (const int32_t num_ranks : {4, 8})
    for (const uint32_t num_items : {8u, 16u})
      for (const double slower : {0.5, 1.0, 2.0, 4.0}) {
        INFO(num_ranks << " ranks, " << num_items << " items, one slower by "
                       << 100 * slower << " %");
        CHECK(over_ideal(one_slow(num_ranks, num_items, slower)) <= 1.10);
      }
}

TEST_CASE(
    "a disruption that moves every 20 steps costs at most 1.10 of the ideal time") {
  for (const double slower : {0.5, 1.0, 2.0, 4.0}) {
    INFO("slower by " << 100 * slower << " %");
    CHECK(over_ideal(moving(slower)) <= 1.10);
  }
}

TEST_CASE("disruptions with a power law cost at most 1.10 of the ideal time") {
  for (const uint32_t num_items : {8u, 16u})
    for (const uint64_t slot : {1u, 4u, 10u}) {
      INFO(num_items << " items, slots of " << slot << " steps");
      CHECK(over_ideal(power_law(num_items, slot)) <= 1.10);
    }
}

TEST_CASE("moves beat a partition by predicted costs that are wrong by 30 %") {
  const World world = log_normal(8, 16, 1, 1);
  const double moved = over_ideal(world);
  CHECK(moved <= 1.08);
  CHECK(moved <= 0.92 * mean_over_ideal(without(world), kFirstStep));
}

TEST_CASE("messages and bytes of a rank do not grow with the number of ranks") {
  for (const int32_t num_helpers : {3, 4}) {
    const auto per_rank = [num_helpers](int32_t num_ranks) {
      World world = one_slow(num_ranks, 8, 1);
      world.num_helpers = num_helpers;
      world.num_steps = 4;
      const Verdict verdict = simulate(world);
      return std::pair(per_rank_step(verdict.num_messages, verdict),
                       per_rank_step(verdict.num_bytes, verdict));
    };
    const auto [messages, bytes] = per_rank(8);
    CHECK(messages < 20);
    for (const int32_t num_ranks : {64, 512}) {
      CHECK(per_rank(num_ranks).first <= messages);
      CHECK(per_rank(num_ranks).second <= bytes);
    }
  }
}

// Column "whole": the best time for whole items, if each rank begins with one of its
// own. So the rest is the protocol's loss.
TEST_CASE("tables of simulated steps", "[.][table]") {
  std::printf("%-38s %8s %8s %8s %8s %8s %8s\n", "time of a step / ideal", "without",
              "whole", "with", "moved", "messages", "bytes");
  const auto percent = [](double slower) {
    return "+" + std::to_string(static_cast<int>(100 * slower)) + " %";
  };
  for (const int32_t num_ranks : {4, 8})
    for (const uint32_t num_items : {8u, 16u, 32u})
      for (const double slower : {0.0, 0.5, 1.0, 2.0, 4.0})
        print_row(std::to_string(num_ranks) + " ranks, " + std::to_string(num_items) +
                      " items, one " + percent(slower),
                  one_slow(num_ranks, num_items, slower));
  for (const double slower : {0.5, 1.0, 2.0, 4.0})
    print_row("moving every 20 steps, " + percent(slower), moving(slower));
  for (const uint32_t num_items : {8u, 16u, 32u})
    for (const uint64_t slot : {1u, 4u, 10u, 20u})
      print_row("power law, " + std::to_string(num_items) + " items, slot of " +
                    std::to_string(slot),
                power_law(num_items, slot));
  for (const int32_t num_ranks : {4, 8, 32, 64})
    print_row(std::to_string(num_ranks) + " ranks, 16 lengths",
              log_normal(num_ranks, 16, 1, 1));
  print_row("8 ranks, 32 lengths", log_normal(8, 32, 1, 1));
  print_row("8 ranks, 16 items of 4 lengths", log_normal(8, 16, 4, 1));
  print_row("8 ranks, 16 items of 16 lengths^2", log_normal(8, 16, 16, 2));
  World equal_counts = log_normal(8, 16, 1, 1);
  equal_counts.is_partitioned = false;
  print_row("8 ranks, 16 lengths, equal counts", equal_counts);
  for (const int32_t num_helpers : {3, 4})
    for (const int32_t num_ranks : {8, 64, 512}) {
      const std::string group = std::to_string(num_ranks) + " ranks, " +
                                std::to_string(num_helpers) + " helpers, ";
      for (const double slower : {0.0, 1.0}) {
        World world = one_slow(num_ranks, 8, slower);
        world.num_helpers = num_helpers;
        world.num_steps = 10;
        print_row(group + "one " + percent(slower), world);
      }
      World world = one_slow(num_ranks, 8, 1);
      world.num_helpers = num_helpers;
      world.num_steps = 10;
      world.slowness = [](int32_t rank, uint64_t) {
        return rank % 8 == rank / 8 * 3 % 8 ? 2 : 1;
      };
      print_row(group + "one of eight +100 %", world);
    }
}

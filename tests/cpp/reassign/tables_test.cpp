// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Times and messages of simulated steps. `test_reassign "[.table]" -s` prints tables.

#include <cstdio>

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

World log_normal() {
  World world = one_slow(8, 16, 0);
  world.num_steps = 100;
  world.cost_sigma = 1;
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

void print_row(const char* name, const World& world) {
  const Verdict verdict = simulate(world);
  std::printf(
      "%-34s %8.3f %8.3f %8.1f %8.1f %8.0f\n", name,
      mean_over_ideal(without(world), kFirstStep), mean_over_ideal(verdict, kFirstStep),
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
    for (const double slower : {0.5, 1.0, 2.0, 4.0}) {
      INFO(num_ranks << " ranks, one slower by " << 100 * slower << " %");
      CHECK(over_ideal(one_slow(num_ranks, 16, slower)) <= 1.10);
    }
}

TEST_CASE(
    "a disruption that moves every 20 steps costs at most 1.10 of the ideal time") {
  for (const double slower : {0.5, 1.0, 2.0, 4.0}) {
    INFO("slower by " << 100 * slower << " %");
    CHECK(over_ideal(moving(slower)) <= 1.10);
  }
}

TEST_CASE("moves beat a partition by predicted costs that are wrong by 30 %") {
  const double moved = over_ideal(log_normal());
  CHECK(moved <= 1.12);
  CHECK(moved <= 0.95 * mean_over_ideal(without(log_normal()), kFirstStep));
}

TEST_CASE("messages and bytes of a rank do not grow with the number of ranks") {
  const auto messages = [](int32_t num_ranks) {
    World world = one_slow(num_ranks, 8, 1);
    world.num_steps = 4;
    const Verdict verdict = simulate(world);
    return per_rank_step(verdict.num_messages, verdict);
  };
  const double of_eight = messages(8);
  CHECK(of_eight < 20);
  CHECK(messages(64) <= of_eight);
  CHECK(messages(512) <= of_eight);
}

TEST_CASE("tables of simulated steps", "[.][table]") {
  std::printf("%-34s %8s %8s %8s %8s %8s\n", "time of a step / ideal", "without",
              "with", "moved", "messages", "bytes");
  for (const int32_t num_ranks : {4, 8})
    for (const uint32_t num_items : {8u, 16u, 32u})
      for (const double slower : {0.0, 0.5, 1.0, 2.0, 4.0}) {
        const std::string name = std::to_string(num_ranks) + " ranks, " +
                                 std::to_string(num_items) + " items, one +" +
                                 std::to_string(static_cast<int>(100 * slower)) + " %";
        print_row(name.c_str(), one_slow(num_ranks, num_items, slower));
      }
  for (const double slower : {0.5, 1.0, 2.0, 4.0}) {
    const std::string name = "moving every 20 steps, +" +
                             std::to_string(static_cast<int>(100 * slower)) + " %";
    print_row(name.c_str(), moving(slower));
  }
  print_row("log-normal, 30 % wrong, LPT", log_normal());
  for (const int32_t num_ranks : {8, 64, 512}) {
    World world = one_slow(num_ranks, 8, 1);
    world.num_steps = 10;
    print_row((std::to_string(num_ranks) + " ranks, 8 items, one +100 %").c_str(),
              world);
    world.slowness = [](int32_t rank, uint64_t) { return rank % 4 == 1 ? 2 : 1; };
    print_row((std::to_string(num_ranks) + " ranks, every fourth +100 %").c_str(),
              world);
  }
}

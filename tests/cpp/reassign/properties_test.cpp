// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Properties of the protocol on random worlds: each item is counted once, and every
// wait ends. The mutations show that these checks notice each broken rule.

#include "harness/catch.h"
#include "reassign/mutation.h"
#include "reassign/simulation.h"

using namespace aikido;
using namespace aikido::reassign;
using namespace std::chrono_literals;

namespace {

constexpr uint64_t kWorlds = 500;  // of 20 steps each

// 2 to 16 ranks with deaths, skips, pauses, early ends, slow ranks and slow networks.
World random_world(uint64_t seed) {
  World world;
  world.seed = seed;
  world.num_ranks = 2 + static_cast<int32_t>(seed * 7 % 15);
  world.num_helpers = 1 + static_cast<int32_t>(seed % 4);
  world.items_per_rank = 1 + static_cast<uint32_t>(seed * 5 % 12);
  world.jitter = 0.2;
  world.cost_sigma = seed % 3 == 0 ? 0.8 : 0;
  world.prediction_sigma = 0.3;
  world.death = seed % 2 == 0 ? 0 : 0.01;
  world.skip = 0.05;
  world.pause = 0.05;
  world.leave = 0.02;
  world.most_latency = seed % 5 == 0 ? 40ms : 2ms;
  world.options.answer_timeout = 15ms;
  if (seed % 7 == 0) world.options.grant.rule = GrantRule::kBlocks;
  world.slowness = [seed](int32_t rank, uint64_t step) {
    const bool is_slow = static_cast<uint64_t>(rank) == (step / 5 + seed) % 4;
    return is_slow ? 1.0 + static_cast<double>(seed % 5) : 1.0;
  };
  return world;
}

// Mutation for one test, switched off at its end.
struct Broken {
  explicit Broken(Rule rule) {
    broken_rule = rule;
    times_broken = 0;
  }
  ~Broken() { broken_rule = Rule::kNone; }
};

}  // namespace

TEST_CASE("each item counts once in 10,000 steps with deaths, skips and pauses") {
  uint64_t num_steps = 0, num_moved = 0, num_lost = 0, num_deaths = 0, num_in_doubt = 0;
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    const Verdict verdict = simulate(random_world(seed));
    INFO("seed " << seed);
    CHECK(verdict.violations == std::vector<std::string>{});
    num_steps += verdict.step_ms.size();
    num_moved += verdict.num_moved;
    num_lost += verdict.num_lost;
    num_deaths += verdict.num_deaths;
    num_in_doubt += verdict.num_in_doubt;
  }
  // The worlds have many cases of every kind.
  CHECK(num_steps == 20 * kWorlds);
  CHECK(num_moved > 10'000);
  CHECK(num_lost > 1'000);
  CHECK(num_deaths > 100);
  CHECK(num_in_doubt <= 10);
}

TEST_CASE("every broken rule is found") {
  for (size_t i = 1; i < kRuleNames.size(); ++i) {
    const Broken broken(static_cast<Rule>(i));
    bool is_found = false;
    for (uint64_t seed = 1; seed <= kWorlds && !is_found; ++seed)
      is_found = !simulate(random_world(seed)).violations.empty();
    INFO(kRuleNames[i]);
    CHECK(times_broken > 0);
    CHECK(is_found);
  }
}

TEST_CASE("a world is repeated exactly by its seed") {
  const Verdict first = simulate(random_world(11));
  const Verdict second = simulate(random_world(11));
  CHECK(first.step_ms == second.step_ms);
  CHECK(first.num_messages == second.num_messages);
}

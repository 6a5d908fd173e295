// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Plans are run on numbers in memory, a number for each shard.
#include "collectives/hop_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "harness/catch.h"
#include "ordering/collective_cost.h"

using namespace aikido;
using namespace aikido::collectives;

namespace {

constexpr Algorithm kAll[] = {Algorithm::kRing, Algorithm::kHalvingDoubling,
                              Algorithm::kTree};
constexpr int32_t kMost = 64;

std::vector<HopPlan> plans_of(Algorithm algorithm, int32_t n) {
  std::vector<HopPlan> plans;
  for (int32_t r = 0; r < n; ++r) plans.emplace_back(algorithm, n, Rank(r));
  return plans;
}

int32_t length(const Transfer& t) {
  return t.peer == kNoRank ? 0 : t.shards.end - t.shards.first;
}

using Numbers = std::vector<double>;  // by shard

// Runs the plans, and looks that each transfer has two ends that agree on it.
std::vector<Numbers> run(const std::vector<HopPlan>& plans, std::vector<Numbers> have) {
  for (int32_t k = 0; k < plans.front().num_hops(); ++k) {
    const auto before = have;
    int32_t sent = 0, received = 0;
    for (size_t r = 0; r < plans.size(); ++r) {
      const Hop hop = plans[r].hop(k);
      sent += length(hop.send);
      const Transfer& in = hop.receive;
      if (in.peer == kNoRank) continue;
      received += length(in);
      const auto from = static_cast<size_t>(in.peer.value);
      const Transfer out = plans[from].hop(k).send;
      REQUIRE(out.peer == Rank(static_cast<int32_t>(r)));
      REQUIRE(out.shards.first == in.shards.first);
      REQUIRE(out.shards.end == in.shards.end);
      for (int32_t s = in.shards.first; s < in.shards.end; ++s) {
        const auto i = static_cast<size_t>(s);
        const double came = before[from][i];
        have[r][i] = k < plans[r].num_folds() ? have[r][i] + came : came;
      }
    }
    REQUIRE(sent == received);
  }
  return have;
}

}  // namespace

TEST_CASE("by each algorithm all ranks have the sum of all") {
  for (const Algorithm algorithm : kAll) {
    for (int32_t n = 1; n <= kMost; ++n) {
      const auto plans = plans_of(algorithm, n);
      std::vector<Numbers> have;
      const auto shards = static_cast<size_t>(plans.front().num_shards());
      // Powers of two of which a sum tells who is in it how often.
      for (int32_t r = 0; r < n; ++r)
        have.emplace_back(shards, std::ldexp(1.0, 4 * (r % 13)));
      double sum = 0;
      for (const Numbers& numbers : have) sum += numbers.front();
      INFO(name_of(algorithm) << " of " << n);
      for (const Numbers& numbers : run(plans, have))
        REQUIRE(numbers == Numbers(shards, sum));
    }
  }
}

TEST_CASE("all ranks have the same bits of sums that are rounded") {
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> some(0, 4);
  for (const Algorithm algorithm : kAll) {
    for (int32_t n = 2; n <= kMost; ++n) {
      const auto plans = plans_of(algorithm, n);
      std::vector<Numbers> have(static_cast<size_t>(n));
      for (Numbers& numbers : have) {
        numbers.resize(static_cast<size_t>(plans.front().num_shards()));
        for (double& number : numbers) number = some(random) * (random() % 2 ? 1 : -1);
      }
      const auto sums = run(plans, have);
      for (const Numbers& numbers : sums)
        REQUIRE(std::memcmp(numbers.data(), sums[0].data(),
                            sizeof(double) * numbers.size()) == 0);
    }
  }
}

TEST_CASE("plans have the hops of their formulas") {
  for (int32_t n = 1; n <= kMost; ++n) {
    const auto hops = [&](Algorithm algorithm) {
      return HopPlan(algorithm, n, Rank(n - 1)).num_hops();
    };
    const auto floor = static_cast<int32_t>(std::log2(n));
    const bool is_power = 1 << floor == n;
    CHECK(hops(Algorithm::kRing) == 2 * (n - 1));
    CHECK(hops(Algorithm::kTree) == 2 * (is_power ? floor : floor + 1));
    CHECK(hops(Algorithm::kHalvingDoubling) == 2 * (is_power ? floor : floor + 1));
  }
}

TEST_CASE("a rank sends the bytes of its algorithm's formula") {
  for (const Algorithm algorithm : kAll) {
    for (int32_t n = 2; n <= kMost; ++n) {
      const auto p = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(n)));
      const auto plans = plans_of(algorithm, n);
      int32_t of_all = 0;
      for (int32_t r = 0; r < n; ++r) {
        int32_t sent = 0;
        const HopPlan& plan = plans[static_cast<size_t>(r)];
        for (int32_t k = 0; k < plan.num_hops(); ++k) sent += length(plan.hop(k).send);
        of_all += sent;
        INFO(name_of(algorithm) << " of " << n << ", rank " << r);
        if (algorithm == Algorithm::kRing) CHECK(sent == 2 * (n - 1));
        if (algorithm != Algorithm::kHalvingDoubling) continue;
        const int32_t whole = r >= p || r + p < n ? p : 0;  // to or from one beyond p
        CHECK(sent == (r < p ? 2 * (p - 1) : 0) + whole);
      }
      // Each but the root gives all of it up once and gets all of it once.
      if (algorithm == Algorithm::kTree) CHECK(of_all == 2 * (n - 1));
    }
  }
}

TEST_CASE("hop after hop a plan takes what the cost formulas say") {
  const double bytes = 1 << 20;
  const ordering::CollectiveCosts costs{{50e-6, 1e-9}, 3e-10, 0};
  for (const Algorithm algorithm : kAll) {
    for (int32_t n = 2; n <= kMost; ++n) {
      const auto plans = plans_of(algorithm, n);
      double taken = 0;
      for (int32_t k = 0; k < plans.front().num_hops(); ++k) {
        int32_t most = 0;
        for (const HopPlan& plan : plans)
          most = std::max(most, length(plan.hop(k).send));
        const double part = bytes * most / plans.front().num_shards();
        taken += costs.message.alpha_s + part * costs.message.beta_s;
        if (k < plans.front().num_folds()) taken += part * costs.gamma_s;
      }
      auto expected = ordering::cost_of(algorithm, n, bytes, costs);
      INFO(name_of(algorithm) << " of " << n);
      CHECK(std::abs(taken / *expected - 1) < 1e-9);
    }
  }
}

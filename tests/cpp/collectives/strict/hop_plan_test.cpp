// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests that run plans on numbers in memory, with one number for each shard.
#include "collectives/strict/hop_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cost/collective_cost.h"
#include "harness/catch.h"

using namespace aikido;
using namespace aikido::collectives;

namespace {

constexpr Algorithm kAll[] = {Algorithm::kRing, Algorithm::kHalvingDoubling,
                              Algorithm::kTree};
constexpr int32_t kMost = 64;

using Hosts = std::vector<int32_t>;  // by rank

std::vector<HopPlan> plans_of(Algorithm algorithm, int32_t n, const Hosts& hosts = {}) {
  std::vector<HopPlan> plans;
  for (int32_t r = 0; r < n; ++r) plans.emplace_back(algorithm, n, Rank(r), hosts);
  return plans;
}

// All ways to place 2 to 8 ranks on 1 to 4 hosts, up to the names of the hosts.
std::vector<Hosts> placements() {
  std::vector<Hosts> all, last{{0}};
  for (int32_t n = 2; n <= 8; ++n) {
    std::vector<Hosts> longer;
    for (const Hosts& hosts : last) {
      const int32_t used = *std::max_element(hosts.begin(), hosts.end()) + 1;
      for (int32_t host = 0; host <= std::min(used, 3); ++host) {
        longer.push_back(hosts);
        longer.back().push_back(host);
      }
    }
    all.insert(all.end(), longer.begin(), longer.end());
    last = std::move(longer);
  }
  return all;
}

std::vector<int> ranks_on(const Hosts& hosts) {
  std::vector<int> counts;
  for (int32_t host = 0; std::count(hosts.begin(), hosts.end(), host) > 0; ++host)
    counts.push_back(static_cast<int>(std::count(hosts.begin(), hosts.end(), host)));
  return counts;
}

std::string text_of(const Hosts& hosts) {
  std::string text;
  for (const int32_t host : hosts) text += std::to_string(host);
  return text;
}

int32_t length(const Transfer& t) {
  return t.peer == kNoRank ? 0 : t.shards.end - t.shards.first;
}

using Numbers = std::vector<double>;  // by shard

// Runs the plans, and checks that the two ends of each transfer agree.
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

TEST_CASE("with each algorithm all ranks get the sum of all ranks") {
  for (const Algorithm algorithm : kAll) {
    for (int32_t n = 1; n <= kMost; ++n) {
      const auto plans = plans_of(algorithm, n);
      std::vector<Numbers> have;
      const auto shards = static_cast<size_t>(plans.front().num_shards());
      // Powers of two, so that a sum shows how often each rank is in it.
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

TEST_CASE("rounded sums have the same bits on all ranks") {
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

TEST_CASE("plans have the number of hops of their formulas") {
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

TEST_CASE("a rank sends as many bytes as the formula of its algorithm says") {
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
        const int32_t whole = r >= p || r + p < n ? p : 0;  // a rank beyond p
        CHECK(sent == (r < p ? 2 * (p - 1) : 0) + whole);
      }
      // Each rank but the root sends all its data once and receives the whole result
      // once.
      if (algorithm == Algorithm::kTree) CHECK(of_all == 2 * (n - 1));
    }
  }
}

TEST_CASE("the hops of a plan take the time of the cost formula") {
  const double bytes = 1 << 20;
  const cost::CollectiveCosts costs{{50e-6, 1e-9}, 3e-10, 0};
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
      auto expected = cost::cost_of(algorithm, n, bytes, costs);
      INFO(name_of(algorithm) << " of " << n);
      CHECK(std::abs(taken / *expected - 1) < 1e-9);
    }
  }
}

TEST_CASE("with two levels all ranks get the sum of all ranks, with the same bits") {
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> some(0, 4);
  const auto all = placements();
  REQUIRE(all.size() == 2 + 5 + 15 + 51 + 187 + 715 + 2795);
  for (const Hosts& hosts : all) {
    INFO("ranks on hosts " << text_of(hosts));
    const auto n = static_cast<int32_t>(hosts.size());
    const auto plans = plans_of(Algorithm::kTwoLevel, n, hosts);
    const auto shards = static_cast<size_t>(plans.front().num_shards());
    std::vector<Numbers> whole, rounded;
    double sum = 0;
    for (int32_t r = 0; r < n; ++r) {
      whole.emplace_back(shards, std::ldexp(1.0, 4 * r));
      sum += whole.back().front();
      rounded.emplace_back(shards);
      for (double& number : rounded.back()) number = some(random);
    }
    for (const Numbers& numbers : run(plans, whole))
      REQUIRE(numbers == Numbers(shards, sum));
    const auto sums = run(plans, rounded);
    for (const Numbers& numbers : sums)
      REQUIRE(std::memcmp(numbers.data(), sums[0].data(), sizeof(double) * shards) ==
              0);
  }
}

TEST_CASE("with two levels a host sends and receives as much as in a ring of hosts") {
  for (const Hosts& hosts : placements()) {
    INFO("ranks on hosts " << text_of(hosts));
    const auto n = static_cast<int32_t>(hosts.size());
    const auto plans = plans_of(Algorithm::kTwoLevel, n, hosts);
    const auto counts = ranks_on(hosts);
    const auto num_hosts = static_cast<int32_t>(counts.size());
    const auto [fewest, most] = std::minmax_element(counts.begin(), counts.end());
    REQUIRE(plans.front().num_shards() == *fewest * num_hosts);
    std::vector<int32_t> up(counts.size()), down(counts.size());
    for (size_t r = 0; r < plans.size(); ++r) {
      REQUIRE(plans[r].num_hops() == 2 * (*most - 1 + num_hosts - 1));
      REQUIRE(plans[r].num_folds() == *most - 1 + num_hosts - 1);
      for (int32_t k = 0; k < plans[r].num_hops(); ++k) {
        const Transfer out = plans[r].hop(k).send;
        if (out.peer == kNoRank) continue;
        const int32_t from = hosts[r], to = hosts[static_cast<size_t>(out.peer.value)];
        if (from == to) continue;
        up[static_cast<size_t>(from)] += length(out);
        down[static_cast<size_t>(to)] += length(out);
      }
    }
    // 2 (h-1)/h of all data, with h hosts.
    const std::vector<int32_t> each(counts.size(), 2 * (num_hosts - 1) * *fewest);
    REQUIRE(up == each);
    REQUIRE(down == each);
  }
}

TEST_CASE("plans with two levels take the time of the cost formula") {
  const double bytes = 1 << 20;
  for (const Hosts& hosts : placements()) {
    cost::CollectiveCosts costs{{50e-6, 1e-9}, 3e-10};
    costs.hosts = ranks_on(hosts);
    costs.local = {5e-6, 2e-10};
    const auto n = static_cast<int32_t>(hosts.size());
    const auto plans = plans_of(Algorithm::kTwoLevel, n, hosts);
    double taken = 0;
    for (int32_t k = 0; k < plans.front().num_hops(); ++k) {
      std::vector<double> up(costs.hosts.size());  // ranks of a host share its link
      double inside = 0, most = 0;
      for (size_t r = 0; r < plans.size(); ++r) {
        const Transfer out = plans[r].hop(k).send;
        const double part = bytes * length(out) / plans[r].num_shards();
        most = std::max(most, part);
        if (out.peer == kNoRank) continue;
        if (hosts[static_cast<size_t>(out.peer.value)] == hosts[r]) {
          inside = std::max(inside, part);
        } else {
          up[static_cast<size_t>(hosts[r])] += part;
        }
      }
      const double uplink = *std::max_element(up.begin(), up.end());
      REQUIRE((uplink == 0 || inside == 0));
      const auto& link = uplink > 0 ? costs.message : costs.local;
      taken += link.alpha_s + (uplink + inside) * link.beta_s;
      if (k < plans.front().num_folds()) taken += most * costs.gamma_s;
    }
    auto expected = cost::cost_of(Algorithm::kTwoLevel, n, bytes, costs);
    INFO("ranks on hosts " << text_of(hosts));
    REQUIRE(std::abs(taken / *expected - 1) < 1e-9);
  }
}

TEST_CASE("two levels without hosts, or with each rank on its own host, are a ring") {
  const auto are_equal = [](const Transfer& a, const Transfer& b) {
    return a.peer == b.peer && a.shards.first == b.shards.first &&
           a.shards.end == b.shards.end;
  };
  for (const Hosts& hosts : {Hosts{}, Hosts{-4, 2, 7, 8, 900}}) {
    for (int32_t r = 0; r < 5; ++r) {
      const HopPlan ring(Algorithm::kRing, 5, Rank(r));
      const HopPlan plan(Algorithm::kTwoLevel, 5, Rank(r), hosts);
      REQUIRE(plan.num_hops() == ring.num_hops());
      for (int32_t k = 0; k < ring.num_hops(); ++k) {
        CHECK(are_equal(plan.hop(k).send, ring.hop(k).send));
        CHECK(are_equal(plan.hop(k).receive, ring.hop(k).receive));
      }
    }
  }
}

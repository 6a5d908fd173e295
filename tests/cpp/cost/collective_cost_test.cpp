// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Costs computed by hand, and sizes at which one algorithm becomes better than another.
#include "cost/collective_cost.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/catch.h"

namespace aikido::cost {
namespace {

constexpr auto kDirect = Algorithm::kDirect;
constexpr auto kRing = Algorithm::kRing;
constexpr auto kHalving = Algorithm::kHalvingDoubling;
constexpr auto kTree = Algorithm::kTree;
constexpr auto kTwoLevel = Algorithm::kTwoLevel;
constexpr auto kOneOwner = Algorithm::kOneOwner;

double cost(Algorithm algorithm, int members, double bytes,
            const CollectiveCosts& costs) {
  auto time_s = cost_of(algorithm, members, bytes, costs);
  if (!time_s) FAIL(time_s.status().message());
  return *time_s;
}

TEST_CASE("costs follow their formulas") {
  const CollectiveCosts costs{{10, 3}, 1, 4};
  REQUIRE(cost(kRing, 4, 8, costs) == 60 + 36 + 6);
  REQUIRE(cost(kHalving, 4, 8, costs) == 40 + 36 + 6);
  REQUIRE(cost(kTree, 4, 8, costs) == 2 * (2 * (10 + 24) + 8));
  REQUIRE(cost(kDirect, 4, 8, costs) == 2 * (10 + 2 * 4) + 36 + 6);
  // With 6 members, 2 are beyond the power of two.
  REQUIRE(cost(kRing, 6, 6, costs) == 100 + 30 + 5);
  REQUIRE(cost(kHalving, 6, 8, costs) == (40 + 36 + 6) + 2 * (10 + 24) + 8);
  REQUIRE(cost(kTree, 6, 8, costs) == 3 * (2 * (10 + 24) + 8));
  REQUIRE(cost(kDirect, 6, 6, costs) == 2 * (10 + 4 * 4) + 30 + 5);
}

TEST_CASE("with fewer owners than members direct has more bytes on a link") {
  const auto direct = [](double bytes, double shard_bytes) {
    return cost(kDirect, 4, bytes, {{10, 3}, 1, 0, shard_bytes});
  };
  REQUIRE(direct(8, 2) == 20 + 36 + 6);
  REQUIRE(direct(8, 3) == 20 + 2 * (36 + 6));
  REQUIRE(direct(8, 5) == 20 + 4 * (36 + 6));
  REQUIRE(direct(8, 100) == direct(8, 5));
  REQUIRE(direct(0, 5) == 20);
  // One owner costs the same for any number of parts of direct, also on shared links.
  REQUIRE(cost(kOneOwner, 4, 8, {{10, 3}, 1, 4, 2}) == 2 * (10 + 2 * 4) + 4 * (36 + 6));
  const CollectiveCosts shared{{10, 3}, 1, 0, 100, {3, 1}, {2, 0.5}};
  REQUIRE(cost(kOneOwner, 4, 8, shared) == cost(kDirect, 4, 8, shared));
}

CollectiveCosts on_hosts(std::vector<int> hosts) {
  return {{10, 3}, 1, 0, 0, std::move(hosts), {2, 0.5}};
}

TEST_CASE("on hosts with several members their links are shared") {
  // Two hosts of three members: 2 hops of half between hosts, 4 hops of a third inside.
  REQUIRE(cost(kTwoLevel, 6, 6, on_hosts({3, 3})) ==
          (20 + 2 * 9 + 1) + (4 * 2 + 4 * 1 + 2 * 2));
  // Three hosts with one leader each: 4 hops of a third between hosts, 2 hops of all
  // bytes inside.
  REQUIRE(cost(kTwoLevel, 5, 6, on_hosts({2, 1, 2})) ==
          (40 + 4 * 6 + 2 * 2) + (2 * 2 + 2 * 3 + 6));
  // Three of six members each send half of their bytes to the other host, and a third
  // inside.
  REQUIRE(cost(kDirect, 6, 6, on_hosts({3, 3})) == 20 + 2 * (3 * 9 + 2 * 0.5) + 5);
  // The busiest host is not the largest host.
  REQUIRE(cost(kDirect, 6, 6, on_hosts({5, 1})) ==
          cost(kDirect, 6, 6, on_hosts({1, 5})));
  // With one owner, all other members send all their bytes to its host.
  auto few = on_hosts({2, 2});
  few.shard_bytes = 100;
  REQUIRE(cost(kDirect, 4, 8, few) == 20 + 2 * (2 * 24 + 1 * 4) + 3 * 8);
}

TEST_CASE("two levels of which one is empty are a ring") {
  for (const int n : {2, 3, 8}) {
    const auto each = on_hosts(std::vector<int>(static_cast<size_t>(n), 1));
    CollectiveCosts one = on_hosts({n});
    const CollectiveCosts local{one.local, 1};
    one.message = {1e6, 1e6};
    for (const double bytes : {0.0, 7.0, 1e6}) {
      REQUIRE(cost(kTwoLevel, n, bytes, each) == cost(kRing, n, bytes, each));
      REQUIRE(cost(kTwoLevel, n, bytes, on_hosts({})) == cost(kRing, n, bytes, each));
      REQUIRE(cost(kDirect, n, bytes, each) == cost(kDirect, n, bytes, on_hosts({})));
      REQUIRE(std::abs(cost(kTwoLevel, n, bytes, one) / cost(kRing, n, bytes, local) -
                       1) < 1e-12);
    }
  }
}

TEST_CASE("two members exchange halves, and one does nothing") {
  const CollectiveCosts costs{{10, 3}, 0, 10};
  for (const auto collective : {kDirect, kRing, kHalving})
    REQUIRE(cost(collective, 2, 8, costs) == 20 + 24);
  for (const auto collective : kAlgorithms) REQUIRE(cost(collective, 1, 8, costs) == 0);
}

Choice chosen(int members, double bytes, const CollectiveCosts& costs,
              const std::vector<Algorithm>& among) {
  auto choice = choose_collective(members, bytes, costs, among);
  if (!choice) FAIL(choice.status().message());
  return *choice;
}

TEST_CASE("halving is for few bytes, and a ring for many bytes with uneven halves") {
  const CollectiveCosts costs{{50e-6, 1e-9}, 0, 0};
  const std::vector<Algorithm> among{kRing, kHalving, kTree};
  REQUIRE(chosen(7, 1e3, costs, among).algorithm == kHalving);
  REQUIRE(chosen(7, 1e7, costs, among).algorithm == kRing);
  REQUIRE(chosen(8, 1e7, costs, among).algorithm == kHalving);
  REQUIRE(chosen(8, 1e7, costs, among).time_s == cost(kHalving, 8, 1e7, costs));
}

TEST_CASE("the first of equally fast algorithms is chosen") {
  const CollectiveCosts costs{{0, 1}, 0, 0};
  REQUIRE(chosen(4, 8, costs, {kRing, kDirect}).algorithm == kRing);
  REQUIRE(chosen(4, 8, costs, {kDirect, kRing}).algorithm == kDirect);
}

TEST_CASE("messages that overlap make direct the best of all sizes") {
  const CollectiveCosts costs{{50e-6, 1e-9}, 0, 0};
  for (const double bytes : {1e4, 1e6, 1e8})
    for (const int members : {3, 4, 7, 8, 32})
      REQUIRE(
          chosen(members, bytes, costs, {kTree, kRing, kHalving, kDirect}).algorithm ==
          kDirect);
}

TEST_CASE("a tree never takes less than halving, and less than a ring for few bytes") {
  const CollectiveCosts costs{{50e-6, 1e-9}, 1e-10, 0};
  for (int members = 2; members <= 70; ++members)
    for (const double bytes : {0.0, 1e3, 1e6, 1e9})
      REQUIRE(cost(kTree, members, bytes, costs) >=
              cost(kHalving, members, bytes, costs) * (1 - 1e-12));
  REQUIRE(chosen(7, 1e3, costs, {kRing, kTree}).algorithm == kTree);
}

TEST_CASE("two levels pay if the links inside of hosts are fast enough") {
  CollectiveCosts costs{{100e-6, 40e-9}, 0, 20e-6};
  costs.hosts = {2, 2};
  costs.local = {5e-6, 0.5e-9};
  REQUIRE(chosen(4, 4e6, costs, {kDirect, kRing, kHalving, kTwoLevel}).algorithm ==
          kTwoLevel);
  // 2 hops of half instead of 6 hops of a quarter.
  costs.local = {0, 0};
  costs.message.alpha_s = costs.message_s = 0;
  REQUIRE(std::abs(cost(kTwoLevel, 4, 4e6, costs) / cost(kRing, 4, 4e6, costs) -
                   2.0 / 3) < 1e-12);
  costs.local = {100e-6, 40e-9};
  REQUIRE(chosen(4, 4e6, costs, {kRing, kTwoLevel}).algorithm == kRing);
}

TEST_CASE("the sizes at which the choice changes grow with alpha") {
  double before = 0;
  for (const double alpha : {10e-6, 100e-6, 1e-3}) {
    const CollectiveCosts costs{{alpha, 1e-9}, 0, 0};
    double bytes = 1;
    while (chosen(7, bytes, costs, {kTree, kRing}).algorithm == kTree) bytes *= 1.1;
    // The size at which 6 alpha + 6 m beta equals 12 alpha + 12/7 m beta.
    REQUIRE(bytes >= 1.4 * alpha / 1e-9);
    REQUIRE(bytes <= 1.4 * alpha / 1e-9 * 1.1);
    REQUIRE(bytes > 5 * before);
    before = bytes;
  }
}

TEST_CASE("costs that make no sense are refused") {
  const auto refusal = [](int members, double bytes, CollectiveCosts costs) {
    const auto status = cost_of(kRing, members, bytes, costs).status();
    REQUIRE(choose_collective(members, bytes, costs, kAlgorithms).status().message() ==
            status.message());
    return status.message();
  };
  REQUIRE(refusal(0, 1, {}) ==
          "a collective of 0 members; it takes a number from 1 up");
  REQUIRE(refusal(2, -1, {}) == "bytes is -1; it takes a finite number from 0 up");
  REQUIRE(refusal(2, 1, {{1, 1}, -1, 0}) ==
          "gamma_s is -1; it takes a finite number from 0 up");
  REQUIRE(refusal(2, 1, {{-1, 1}, 0, 0}) ==
          "alpha of the link is -1; it takes a finite number from 0 up");
  REQUIRE(refusal(2, 1, {{1, 1}, 0, 2}) ==
          "message_s is 2 and alpha 1; what a sender is busy with is a part of alpha");
  const auto of_hosts = [&](std::vector<int> hosts, LinkCost local) {
    CollectiveCosts costs{{1, 1}};
    costs.hosts = std::move(hosts);
    costs.local = local;
    return refusal(3, 1, costs);
  };
  REQUIRE(of_hosts({1, 2}, {-1, 0}) ==
          "alpha of the link is -1; it takes a finite number from 0 up");
  for (const auto& [hosts, placed] : {std::pair(std::vector<int>{1, 1}, "2"),
                                      {{4}, "4"},
                                      {{4, -1}, "3"},
                                      {{0, 3}, "3"}})
    REQUIRE(of_hosts(hosts, {}) == std::string("the hosts have ") + placed +
                                       " of 3 members; it takes one or more on each, "
                                       "and all of them");
  REQUIRE(choose_collective(2, 1, {}, {}).status().message() ==
          "there is no collective to choose from; it takes one or more");
}

TEST_CASE("collectives have names") {
  for (const auto& [collective, name] : {std::pair(kDirect, "direct"),
                                         {kRing, "ring"},
                                         {kTree, "tree"},
                                         {kHalving, "halving_doubling"},
                                         {kTwoLevel, "two_level"},
                                         {kOneOwner, "one_owner"}}) {
    REQUIRE(std::string_view(name_of(collective)) == name);
    REQUIRE(*algorithm_named(name) == collective);
  }
  REQUIRE(algorithm_named("star").status().message() ==
          "the collective is \"star\"; it takes direct, ring, halving_doubling, tree, "
          "two_level, one_owner");
}

}  // namespace
}  // namespace aikido::cost

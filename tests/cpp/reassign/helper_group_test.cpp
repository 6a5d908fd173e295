// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/helper_group.h"

#include <algorithm>

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::reassign;

namespace {

std::vector<int32_t> helpers(int32_t rank, int32_t n, int32_t k,
                             std::vector<int32_t> hosts = {}) {
  std::vector<int32_t> found;
  auto group = helper_group(Rank(rank), n, k, hosts);
  for (const Rank one : group->helpers) found.push_back(one.value);
  return found;
}

}  // namespace

TEST_CASE("helpers are near and far on a ring, in both directions") {
  using Ranks = std::vector<int32_t>;
  CHECK(helpers(0, 8, 2) == Ranks{1, 7});
  CHECK(helpers(0, 8, 3) == Ranks{1, 7, 4});
  CHECK(helpers(0, 8, 4) == Ranks{1, 7, 3, 5});
  CHECK(helpers(6, 8, 4) == Ranks{7, 5, 1, 3});
  CHECK(helpers(0, 8, 7) == Ranks{1, 7, 3, 5, 2, 6, 4});
  CHECK(helpers(0, 64, 4) == Ranks{1, 63, 8, 56});
  CHECK(helpers(0, 4, 3) == Ranks{1, 3, 2});
  CHECK(helpers(1, 3, 3) == Ranks{2, 0});
  CHECK(helpers(0, 2, 3) == Ranks{1});
  CHECK(helpers(0, 1, 3).empty());
  CHECK(helpers(2, 8, 0).empty());
}

TEST_CASE("helpers are on the own host, except the last") {
  using Ranks = std::vector<int32_t>;
  const std::vector<int32_t> two = {0, 0, 0, 0, 1, 1, 1, 1};
  CHECK(helpers(0, 8, 3, two) == Ranks{1, 3, 4});
  CHECK(helpers(0, 8, 4, two) == Ranks{1, 3, 2, 4});
  CHECK(helpers(3, 8, 3, two) == Ranks{0, 2, 7});
  CHECK(helpers(5, 8, 3, two) == Ranks{6, 4, 1});
  // Hosts are found by their number, wherever their ranks are.
  CHECK(helpers(0, 8, 3, {5, 9, 5, 9, 5, 9, 5, 9}) == Ranks{2, 6, 1});
  // The own host has too few ranks.
  CHECK(helpers(0, 6, 3, {0, 0, 1, 1, 2, 2}) == Ranks{1, 2, 3});
  CHECK(helpers(0, 4, 3, {0, 1, 2, 3}) == Ranks{1, 2, 3});
  CHECK(helpers(0, 8, 1, two) == Ranks{1});
}

TEST_CASE("ranks of a host help each other") {
  for (const int32_t n : {2, 3, 5, 8, 16, 64})
    for (const int32_t k : {2, 4})
      for (int32_t r = 0; r < n; ++r) {
        auto of_rank = helpers(r, n, k);
        std::sort(of_rank.begin(), of_rank.end());
        std::vector<int32_t> owners;
        const auto group = helper_group(Rank(r), n, k, {}).value();
        for (const Rank owner : group.owners) owners.push_back(owner.value);
        CHECK(of_rank == owners);
      }
}

TEST_CASE("a rank helps as many ranks as help it, whatever the number of ranks") {
  for (const int32_t n : {2, 3, 8, 64, 512})
    for (const int32_t per_host : {1, 2, 8}) {
      std::vector<int32_t> hosts;
      for (int32_t r = 0; r < n; ++r) hosts.push_back(r / per_host);
      for (int32_t r = 0; r < n; r += std::max(1, n / 16)) {
        const auto group = helper_group(Rank(r), n, 3, hosts).value();
        CHECK(group.helpers.size() == static_cast<size_t>(std::min(3, n - 1)));
        if (n % per_host == 0) CHECK(group.owners.size() == group.helpers.size());
        CHECK(group.owners.size() <= 2 * 3);
        for (const Rank owner : group.owners) {
          const auto of_owner = helpers(owner.value, n, 3, hosts);
          CHECK(std::count(of_owner.begin(), of_owner.end(), r) == 1);
        }
      }
    }
}

TEST_CASE("a helper group of nonsense is refused with a sentence") {
  const auto error = [](int32_t rank, int32_t n, int32_t k,
                        std::vector<int32_t> hosts) {
    return helper_group(Rank(rank), n, k, hosts).status().message();
  };
  CHECK(error(4, 4, 3, {}) ==
        "rank 4 has no helpers in a group of 4 ranks; pass a rank of the group");
  CHECK(error(0, 4, -1, {}) == "a rank cannot have -1 helpers; pass 0 or more");
  CHECK(error(0, 3, 1, {0, 0}) ==
        "hosts of 2 ranks for 3 ranks; pass one host for each rank");
}

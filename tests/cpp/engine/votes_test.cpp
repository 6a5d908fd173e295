// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/votes.h"

#include "harness/catch.h"
#include "harness/cluster.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::testing;
using membership::Agreement;

TEST_CASE("members of a group without skippable calls agree after a death") {
  ClusterOptions options{.size = 5};
  options.reliable = {0, 1};
  Cluster cluster(options);
  for (const int32_t dead : {2, 3, 4}) cluster.kill(dead);
  for (const int32_t r : {0, 1}) cluster.group(r).votes().agree({Rank(2)});
  cluster.run_for(milliseconds(40));
  for (const int32_t r : {0, 1}) {
    auto agreed = cluster.group(r).votes().agreement();
    REQUIRE(agreed);
    CHECK(**agreed == Agreement{1, set_of(5, {0, 1})});
    CHECK_FALSE(cluster.group(r).votes().agreement());
  }
}

TEST_CASE("without a majority the error names the lost reliable member") {
  ClusterOptions options{.size = 3};
  options.reliable = {1};
  Cluster cluster(options);
  cluster.kill(1);
  cluster.run_for(milliseconds(1));
  cluster.group(0).votes().agree({});
  auto agreed = cluster.group(0).votes().agreement();
  REQUIRE(agreed);
  CHECK(agreed->status().code() == Code::kPeerLost);
  CHECK(agreed->status().culprit() == Rank(1));
  CHECK(agreed->status().message() ==
        "the only reliable member is lost, so the members cannot agree; start again "
        "from a checkpoint");
}

TEST_CASE(
    "a wait that is given up names the voters, and a group that ends its reason") {
  ClusterOptions options{.size = 3};
  options.reliable = {0, 2};
  Cluster cluster(options);
  cluster.group(0).votes().agree({});
  CHECK(cluster.group(0).votes().is_agreeing());
  const Status late = cluster.group(0).votes().give_up(milliseconds(7));
  CHECK(late.code() == Code::kTimedOut);
  CHECK(
      late.message() ==
      "Timed out after 7 ms: more than half of the voters (rank 0, rank 2) have not "
      "answered in this time; pass a longer timeout, or start again from a checkpoint");
  CHECK_FALSE(cluster.group(0).votes().is_agreeing());
  cluster.group(0).abort({Code::kAborted, "enough"});
  cluster.group(0).votes().agree({});
  CHECK(cluster.group(0).votes().agreement()->status().message() == "enough");
}

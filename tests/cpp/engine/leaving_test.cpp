// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Tests of the errors of calls when members leave in order.

#include "engine/group.h"
#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

Bytes floats(size_t count) {
  return Bytes(count * sizeof(float));
}
void check_failed(const AnswerPtr& a, Code code, const std::string& part) {
  REQUIRE(a->is_done());
  INFO(a->status.message());
  CHECK(a->status.code() == code);
  CHECK(a->status.message().find(part) != std::string::npos);
}
void leave(Cluster& cluster, int32_t rank) {
  cluster.group(rank).leave();
  cluster.run_for(milliseconds(1));
  cluster.group(rank).close_links();
  cluster.run_for(milliseconds(1));
}

}  // namespace

TEST_CASE(
    "a call fails with the reason of the member that failed it, after others have "
    "left") {
  for (const bool is_called : {false, true}) {
    Cluster cluster({.size = 3, .min_shard_bytes = 1 << 20});  // owned by rank 0
    const Call call = allreduce_call(DType::kFloat32, 100);
    const auto late = [&] { return cluster.allreduce(2, call, floats(100)); };
    auto failed = cluster.allreduce(0, call, floats(100));
    AnswerPtr failing = is_called ? late() : nullptr;
    cluster.run_for(milliseconds(1));
    cluster.network.set_delay(Rank(1), Rank(2), milliseconds(50));
    cluster.group(1).refuse({Code::kInvalidArgument, "rank 1 refuses", Rank(1)});
    cluster.run_for(milliseconds(1));
    check_failed(failed, Code::kInvalidArgument, "rank 1 refuses");
    leave(cluster, 0);
    if (!is_called) failing = late();
    REQUIRE(cluster.run_until_done({failing}, milliseconds(60)));
    check_failed(failing, Code::kInvalidArgument, "rank 1 refuses");
    CHECK(failing->status.culprit() == Rank(1));
    // Later the error says that a member has left.
    cluster.run_for(milliseconds(100));
    auto behind = late();
    CHECK(behind->is_done());
    check_failed(behind, Code::kPeerLost, "rank 0 has left");
  }
}

TEST_CASE(
    "a call without time, or after a death, does not wait for the reason of a leave") {
  for (const bool is_death : {false, true}) {
    Cluster cluster({.size = 4, .min_shard_bytes = 1 << 20});  // owned by rank 0
    const Call call = allreduce_call(DType::kFloat32, 100);
    auto waiting = cluster.allreduce(2, call, floats(100), milliseconds(50));
    cluster.run_for(milliseconds(1));
    leave(cluster, 0);
    cluster.run_for(milliseconds(9));
    CHECK_FALSE(waiting->is_done());
    if (is_death) cluster.network.cut(Rank(3), Rank(2));
    cluster.run_for(milliseconds(is_death ? 5 : 45));
    REQUIRE(waiting->is_done());
    check_failed(waiting, Code::kPeerLost, is_death ? "rank 3" : "rank 0 has left");
  }
}

TEST_CASE("each member that leaves gives time to learn its reason") {
  Cluster cluster({.size = 4, .min_shard_bytes = 1 << 20});  // owned by rank 0
  const Call call = allreduce_call(DType::kFloat32, 100);
  auto waiting = cluster.allreduce(2, call, floats(100));
  cluster.run_for(milliseconds(1));
  for (const int32_t r : {0, 1}) {
    leave(cluster, r);
    cluster.run_for(milliseconds(79));
  }
  CHECK_FALSE(waiting->is_done());
  cluster.run_for(milliseconds(30));
  check_failed(waiting, Code::kPeerLost, "has left");
}

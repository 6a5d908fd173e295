// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Tests of strict calls whose number one member uses up without making the call.

#include "engine/group.h"
#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::Call;
using collectives::CallKind;

namespace {

Bytes floats(size_t count) {
  return Bytes(count * sizeof(float));
}

}  // namespace

TEST_CASE("a broadcast that one member leaves out goes on for all others") {
  for (const bool has_come : {false, true}) {
    Cluster cluster({.size = 3});
    Call call = allreduce_call(DType::kFloat32, 8);
    call.kind = CallKind::kBroadcast;
    call.root = Rank(0);
    std::vector<AnswerPtr> answers;
    const auto call_on = [&](int32_t rank) {
      answers.push_back(cluster.broadcast(rank, call, floats(call.count)));
    };
    if (has_come) call_on(0);
    if (has_come) cluster.run_for(milliseconds(5));
    cluster.group(1).refuse({Code::kInvalidArgument, "left out", Rank(1)}, false);
    cluster.run_for(milliseconds(5));
    if (!has_come) call_on(0);
    call_on(2);  // later than the others
    REQUIRE(cluster.run_until_done(answers, milliseconds(5)));
    for (const auto& a : answers) CHECK(a->is_ok());
    answers.clear();
    for (int32_t r = 0; r < 3; ++r) answers.push_back(cluster.barrier(r));
    REQUIRE(cluster.run_until_done(answers, milliseconds(20)));
    for (const auto& a : answers) CHECK(a->is_ok());
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A cluster in which one member, kLate, calls later than the others.

#include <vector>

#include "harness/catch.h"
#include "harness/cluster.h"

namespace aikido::testing {

inline constexpr int32_t kLate = 3;
inline constexpr size_t kLarge = 100'000;  // floats: a third has 130 kB

// True if `rank` owns a shard. Checks that the views of all members agree.
inline bool owns(Cluster& cluster, int32_t rank) {
  const bool is_owner = cluster.group(0).view().is_owner(Rank(rank));
  for (int32_t r = 1; r < cluster.size(); ++r)
    CHECK(cluster.group(r).view().is_owner(Rank(rank)) == is_owner);
  return is_owner;
}

// Runs until all calls have ended. Checks that they succeeded with the same result.
inline void end_operation(Cluster& cluster, const std::vector<AnswerPtr>& answers) {
  REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
  cluster.run_for(milliseconds(5));
  for (const AnswerPtr& answer : answers) {
    REQUIRE(answer->is_ok());
    CHECK(answer->output == answers.front()->output);
  }
}

// All members call, kLate `lag` later than the others. All calls have ended on return.
inline void run_operation(Cluster& cluster, const Call& call, Duration lag) {
  const Bytes input = random_elements(call.dtype, call.count, 7);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < cluster.size(); ++r)
    if (r != kLate) answers.push_back(cluster.allreduce(r, call, input));
  cluster.run_for(lag);
  answers.push_back(cluster.allreduce(kLate, call, input));
  end_operation(cluster, answers);
}

}  // namespace aikido::testing

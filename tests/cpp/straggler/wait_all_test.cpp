// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/wait_all.h"

#include "harness/catch.h"

namespace aikido::straggler {
namespace {

TEST_CASE("wait all closes with the last arrival and never before") {
  for (int32_t n = 1; n <= 8; ++n) {
    WaitAll policy(n);
    TimePoint now{};
    for (int32_t r = 0; r < n; ++r) {
      const Decision waits = policy.decide(now + std::chrono::hours(1));
      CHECK(waits.verdict == Verdict::kWait);
      CHECK(waits.reason == Reason::kWaitsForAll);
      CHECK(waits.rank == Rank(r));
      CHECK(waits.num_arrived == r);
      CHECK_FALSE(policy.next_look());
      policy.on_arrival(Rank(r), now += std::chrono::seconds(1));
      policy.on_arrival(Rank(r),
                        now);  // a second copy does not count as a second member
    }
    const Decision closes = policy.decide(now);
    CHECK(closes.closes());
    CHECK(closes.reason == Reason::kComplete);
    CHECK(closes.rank == kNoRank);
    CHECK(policy.arrived().is_full());
    CHECK_FALSE(policy.quorum_time());
  }
}

TEST_CASE("the times of the first copies are reported when all have arrived") {
  Rebalance rebalance(3);
  for (int i = 1; i <= 4; ++i) {
    const TimePoint now{std::chrono::seconds(i)};
    WaitAll policy(3, &rebalance, RankSet::full(3));
    policy.on_arrival(Rank(2), now);
    policy.on_arrival(Rank(0), now);
    CHECK(rebalance.in_time_run(Rank(0)) == static_cast<uint32_t>(i - 1));
    policy.on_arrival(Rank(2), now + std::chrono::milliseconds(400));  // a second copy
    policy.on_arrival(Rank(1), now + std::chrono::milliseconds(300));
    CHECK(rebalance.in_time_run(Rank(0)) == static_cast<uint32_t>(i));
  }
  CHECK(rebalance.is_slow(Rank(1)));
  CHECK_FALSE(rebalance.is_slow(Rank(2)));
}

TEST_CASE("a strict policy waits for all members, even if they are expected late") {
  WaitAll policy(3);
  RankSet members = RankSet::full(3);
  members.erase(Rank(2));
  policy.expect(members);
  for (const int32_t r : {0, 1}) policy.on_arrival(Rank(r), TimePoint{});
  CHECK_FALSE(policy.decide(TimePoint{}).closes());
  policy.on_arrival(Rank(2), TimePoint{});
  CHECK(policy.decide(TimePoint{}).closes());
}

}  // namespace
}  // namespace aikido::straggler

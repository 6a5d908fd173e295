// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/group_policy.h"

#include "harness/catch.h"
#include "straggler/play.h"
#include "straggler/skip.h"
#include "straggler/wait_all.h"

namespace aikido::straggler {
namespace {

using testing::log_of;

TEST_CASE("the group starts the policy that its options name") {
  PolicyOptions options;
  GroupPolicy waits(options, log_of(4, 1000));
  CHECK(dynamic_cast<WaitAll*>(waits.start(Seq(1), 100).get()) != nullptr);
  options.kind = Kind::kSkip;
  GroupPolicy skips(options, log_of(4, 1000));
  CHECK(dynamic_cast<Skip*>(skips.start(Seq(1), 100).get()) != nullptr);
  CHECK(skips.options() == options);
}

TEST_CASE("the policies of one group share their knowledge of the members") {
  PolicyOptions options;
  options.kind = Kind::kSkip;
  options.warmup_operations = 2;
  GroupPolicy group(options, log_of(3, 1000));
  TimePoint now{};
  for (uint64_t i = 1; i <= 3; ++i) {
    now += std::chrono::milliseconds(100);
    auto policy = group.start(Seq(i), 100);
    policy->on_arrival(Rank(0), now);
    policy->on_arrival(Rank(1), now);
    const Decision decision = policy->decide(now);
    CHECK(decision.verdict == Verdict::kWait);
    CHECK(decision.reason == (i <= 2 ? Reason::kWarmingUp : Reason::kWithinDeadline));
    CHECK(decision.deadline == (i <= 2 ? options.ceiling : options.floor));
    policy->on_arrival(Rank(2), now);
    policy->on_close({}, 100, now);
    group.history().on_committed(Seq(i), policy->arrived(), 100);
  }
}

TEST_CASE("a ceiling beyond the time-out of the calls becomes half of this time-out") {
  using std::chrono::seconds;
  PolicyOptions options;
  options.kind = Kind::kSkip;
  GroupPolicy group(options, log_of(3, 1000));
  CHECK(group.ceiling() == seconds(10));
  const auto deadline = [&] { return group.deadline_of(Rank(1), Seq(1000), 100); };
  for (const auto& [timeout, longest] :
       {std::pair{1800, 10'000}, std::pair{11, 10'000}, std::pair{10, 5'000},
        std::pair{4, 2'000}, std::pair{1800, 10'000}}) {
    group.on_timeout(seconds(timeout));
    CHECK(group.ceiling() == std::chrono::milliseconds(longest));
    CHECK(deadline() == group.ceiling());  // nothing is known yet
    CHECK(group.options() == options);
  }
}

TEST_CASE("with rebalancing the group notes members that are late for full sums") {
  PolicyOptions options;
  GroupPolicy strict(options, log_of(3, 1000));
  options.rebalance = true;
  GroupPolicy exact(options, log_of(3, 1000));
  const auto play = [](GroupPolicy& group, uint64_t seq, bool is_noted, int lag) {
    const TimePoint now{std::chrono::seconds(seq)};
    auto policy = is_noted ? group.start(Seq(seq), 100, RankSet::full(3))
                           : group.start(Seq(seq), 100);
    for (const int32_t r : {0, 1, 2})
      policy->on_arrival(Rank(r), now + std::chrono::milliseconds(r == 0   ? 0
                                                                  : r == 1 ? 50
                                                                           : 50 + lag));
    CHECK(policy->decide(now).closes());
    group.history().on_committed(Seq(seq), policy->arrived(), 100);
  };
  for (uint64_t seq = 1; seq <= 4; ++seq) {
    play(strict, seq, true, 300);
    play(exact, seq, true, 300);
  }
  CHECK(exact.is_slow(Rank(2)));
  CHECK_FALSE(exact.is_slow(Rank(1)));
  CHECK(exact.healthy_run(Rank(2)) == 0);
  CHECK(exact.healthy_run(Rank(1)) == 4);
  CHECK_FALSE(strict.is_slow(Rank(2)));
  CHECK(strict.healthy_run(Rank(2)) == 4);
  // The policy records nothing about a shard that has a new owner.
  for (uint64_t seq = 5; seq <= 8; ++seq) play(exact, seq, false, 0);
  CHECK(exact.is_slow(Rank(2)));
  for (uint64_t seq = 9; seq <= 12; ++seq) play(exact, seq, true, 0);
  CHECK_FALSE(exact.is_slow(Rank(2)));
  CHECK(exact.healthy_run(Rank(2)) == 4);
  exact.on_moved(Rank(2), false, Seq(12));
  CHECK(exact.healthy_run(Rank(2)) == 0);
}

TEST_CASE("a group with options out of range is a defect of its maker") {
  PolicyOptions options;
  options.kind = Kind::kSkip;
  options.min_contributors = 5;
  CHECK_THROWS_AS(GroupPolicy(options, log_of(4, 1000)), InternalError);
}

}  // namespace
}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Operations in which half of four members have arrived and the others are late:
// skip.h, Note [half of the members].
#include "harness/catch.h"
#include "straggler/play.h"
#include "straggler/skip.h"

namespace aikido::straggler {
namespace {

using testing::Delays;
using testing::kBytes;
using testing::log_of;
using testing::ms;
using testing::play_all;
using testing::skip_options;

constexpr uint64_t kNoLogLimit = UINT64_MAX;
constexpr uint64_t kNext = 21;

TimePoint at(double after_ms) {
  return TimePoint(std::chrono::hours(1)) + ms(after_ms);
}

// Twenty operations of 400 ms in which no member is late. So one contribution is worth
// about 100 ms.
void warm_up(GroupPolicy& group) {
  play_all(group, kNext - 1, ms(400), [](int) {
    return Delays{ms(0), ms(1), ms(2), ms(3)};
  });
}

// Members 0 and 1 have called at 0, and the contribution of 1 arrives at `t_half`.
std::unique_ptr<Policy> half_here(GroupPolicy& group, double t_half_ms,
                                  uint64_t seq = kNext) {
  auto policy = group.start(Seq(seq), kBytes);
  policy->on_called(Rank(1), at(0));
  policy->on_arrival(Rank(0), at(0));
  policy->on_arrival(Rank(1), at(t_half_ms));
  return policy;
}

TEST_CASE(
    "half of the members wait for another one as long as all missing members are "
    "worth") {
  GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
  warm_up(group);
  const double worth = 2 * to_ms(group.deadline_of(Rank(2), Seq(1000), kBytes));
  REQUIRE(worth > 185);
  REQUIRE(worth < 205);
  struct Row {
    double called_ms;  // call of member 2; negative: it has not called. Member 3 never
                       // calls
    double t_half_ms, close_ms;
  };
  const Row rows[] = {
      {-1, 60, worth},       // they may still call
      {-1, 250, 250},        // their calls are late
      {10, 60, 60 + worth},  // its contribution is in flight
      {250, 60, worth},      // its call is too late for that
      {10, 600, 1200},   // links are slow: the wait is as long as the first half took
      {290, 600, 1200},  // late by less than half of that
      {310, 600, 600},   // late by more
  };
  for (const Row& row : rows) {
    INFO("called at " << row.called_ms << ", half at " << row.t_half_ms);
    auto policy = half_here(group, row.t_half_ms);
    if (row.called_ms >= 0) policy->on_called(Rank(2), at(row.called_ms));
    const auto look = policy->next_look();
    REQUIRE(look);
    CHECK(to_ms(*look - at(0)) == Approx(row.close_ms));
    CHECK_FALSE(policy->decide(*look - Duration(1)).closes());
    const Decision decision = policy->decide(*look);
    CHECK(decision.closes());
    CHECK(decision.reason == Reason::kHalf);
    CHECK(decision.num_arrived == 2);
    CHECK(to_ms(decision.deadline) == Approx(row.close_ms - row.t_half_ms));
    CHECK_FALSE(policy->quorum_time());
    // The quorum is complete in time. From then on the last member has its own
    // deadline.
    policy->on_arrival(Rank(2), *look - Duration(1));
    CHECK(policy->quorum_time() == *look - Duration(1));
    CHECK(policy->decide(*look - Duration(1)).reason != Reason::kHalf);
  }
}

TEST_CASE("half of the members wait for the rest as long as the rest usually takes") {
  GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
  play_all(group, kNext - 1, ms(400), [](int) {
    return Delays{ms(0), ms(1), ms(301), ms(302)};
  });
  CHECK(group.history().median_after_half(kBytes) == ms(300));
  auto policy = half_here(group, 1);
  policy->on_called(Rank(2), at(0));
  REQUIRE(policy->next_look());
  CHECK(*policy->next_look() == at(1 + 1.5 * 300));
  // A member whose call is later than that is not waited for.
  policy = half_here(group, 1);
  policy->on_called(Rank(2), at(449));
  CHECK(*policy->next_look() == at(1 + 1.5 * 300));
  policy = half_here(group, 1);
  policy->on_called(Rank(2), at(451));
  CHECK(*policy->next_look() == at(1.5 * 300));  // until then the other member may call
}

TEST_CASE("half of the members are not always enough") {
  const auto closes = [](Policy& policy) {
    return policy.decide(at(1e6)).closes() || policy.next_look();
  };
  PolicyOptions options = skip_options();
  SECTION("if the user requires more") {
    options.min_contributors = 3;
    GroupPolicy group(options, log_of(4, kNoLogLimit));
    warm_up(group);
    CHECK_FALSE(closes(*half_here(group, 60)));
  }
  SECTION("before enough is known of the missing members") {
    GroupPolicy group(options, log_of(4, kNoLogLimit));
    CHECK_FALSE(closes(*half_here(group, 60, 2)));
  }
  SECTION("if the quorum is required") {
    GroupPolicy group(options, log_of(4, kNoLogLimit));
    warm_up(group);
    auto policy = half_here(group, 60);
    CHECK(closes(*policy));
    policy->require_quorum();
    CHECK_FALSE(closes(*policy));
  }
  SECTION("if no missing member can come") {
    GroupPolicy group(options, log_of(4, kNoLogLimit));
    warm_up(group);
    auto policy = half_here(group, 60);
    RankSet left(4);
    left.insert(Rank(0));
    left.insert(Rank(1));
    policy->expect(left);
    CHECK_FALSE(closes(*policy));
  }
  SECTION("if a missing member must contribute") {
    options.max_consecutive_skips = 1;
    GroupPolicy group(options, log_of(4, kNoLogLimit));
    warm_up(group);
    RankSet mask = RankSet::full(4);
    mask.erase(Rank(3));
    group.history().on_committed(Seq(kNext), mask, kBytes);
    CHECK_FALSE(closes(*half_here(group, 60, kNext + 1)));
  }
}

TEST_CASE("members that were skipped last are waited for when they are back") {
  struct Row {
    bool both_skipped, back, closes;
  };
  for (const Row& row :
       {Row{true, true, false}, Row{true, false, true}, Row{false, true, true}}) {
    INFO(row.both_skipped << " " << row.back);
    GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
    warm_up(group);
    RankSet mask = RankSet::full(4);
    mask.erase(Rank(3));
    if (row.both_skipped) mask.erase(Rank(2));
    group.history().on_committed(Seq(kNext), mask, kBytes);
    if (row.back)
      for (int32_t r = 0; r < 4; ++r)
        group.history().on_called(Rank(r), Seq(kNext), at(-100));
    const auto policy = half_here(group, 60, kNext + 1);
    CHECK(policy->next_look().has_value() == row.closes);
  }
}

TEST_CASE(
    "a member without which another shard closed has no time unless it has called") {
  GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
  warm_up(group);
  RankSet late(4);
  late.insert(Rank(3));
  for (const bool has_called : {false, true}) {
    const auto policy = group.start(Seq(kNext), kBytes);
    if (has_called) policy->on_called(Rank(3), at(0));
    for (int32_t r = 0; r < 3; ++r) policy->on_arrival(Rank(r), at(0));
    CHECK_FALSE(policy->decide(at(0)).closes());
    policy->on_closed_without(late);
    CHECK(policy->decide(at(0)).closes() == !has_called);
  }
}

}  // namespace
}  // namespace aikido::straggler

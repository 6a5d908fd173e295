// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of the view of a group: its members, the results that are sent again, and the
// members that rejoin.
#include <set>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;

TEST_CASE("a group without trouble stays in its first view") {
  Cluster cluster({.size = 3});
  cluster.set_all_delays(milliseconds(1));
  for (int i = 0; i < 20; ++i) {
    const auto answers = call_all(cluster, skip_sum_call(300), {0, 1, 2});
    REQUIRE(cluster.run_until_done(answers, milliseconds(100)));
    CHECK(all_ok(answers));
  }
  for (int32_t r = 0; r < 3; ++r) CHECK(cluster.group(r).view().number == 1);
}

TEST_CASE("a group goes on in a view without a dead member") {
  for (const size_t count : {10u, 1000u}) {
    Cluster cluster({.size = 4});
    cluster.set_all_delays(milliseconds(1));
    auto answers = call_all(cluster, skip_sum_call(count), {0, 1, 2, 3});
    REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
    // The first owner dies with its call under way.
    answers = call_all(cluster, skip_sum_call(count), {1, 2, 3});
    cluster.kill(0);
    REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
    CHECK(all_ok(answers));
    for (const int32_t r : {1, 2, 3}) {
      const membership::View& view = cluster.group(r).view();
      CHECK(view.number == 2);
      CHECK_FALSE(view.has(Rank(0)));
      CHECK(view == cluster.group(1).view());
    }
    // Later calls need no further view.
    answers = call_all(cluster, skip_sum_call(count), {1, 2, 3});
    REQUIRE(cluster.run_until_done(answers, milliseconds(20)));
    CHECK(all_ok(answers));
    CHECK(answers[0]->outcome.skipped == std::vector<Rank>{Rank(0)});
  }
}

TEST_CASE(
    "members do not contribute again to results that all have when an owner is lost") {
  constexpr size_t kCount = 1'000'000;  // floats: a shard has 1 MB
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(50'000'000);
  const Call call = skip_sum_call(kCount);
  const Bytes input = random_elements(call.dtype, call.count, 7);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 4; ++r) answers.push_back(cluster.allreduce(r, call, input));
  // All members have the results of ranks 0, 1 and 2. The result of rank 3 never
  // arrives.
  uint64_t contributed = 0;
  cluster.network.set_tap([&](Rank from, Rank to, const transport::FrameHeader& h,
                              TimePoint arrives) {
    const bool is_again = h.view > 1 && h.shard < 3;
    if (is_again && h.kind == transport::FrameKind::kContrib)
      contributed += h.payload_bytes;
    if (h.kind != transport::FrameKind::kResult) return arrives;
    return from == Rank(3) && to != Rank(3) ? arrives + milliseconds(60'000) : arrives;
  });
  cluster.run_for(milliseconds(300));
  CHECK_FALSE(answers[0]->is_done());
  cluster.kill(3);
  answers.pop_back();
  REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
  for (const AnswerPtr& answer : answers) {
    CHECK(answer->is_ok());
    CHECK(answer->output == answers.front()->output);
  }
  CHECK(contributed == 0);
  cluster.network.set_tap({});
}

TEST_CASE(
    "a group goes on without a member that leaves after another member has died") {
  Cluster cluster({.size = 5, .min_shard_bytes = 1 << 20});  // rank 0 owns all
  cluster.set_all_delays(milliseconds(1));
  auto answers = call_all(cluster, skip_sum_call(10), {0, 1, 2, 3, 4});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.network.set_delay(Rank(0), Rank(2), milliseconds(30));
  answers = call_all(cluster, skip_sum_call(10), {0, 1, 2, 3, 4});
  cluster.run_for(milliseconds(5));
  cluster.kill(4);
  std::vector<AnswerPtr> strict;
  for (const int32_t r : {0, 2, 3}) strict.push_back(cluster.barrier(r));
  cluster.run_for(milliseconds(3));
  REQUIRE(answers[1]->is_ok());
  REQUIRE_FALSE(answers[2]->is_done());
  cluster.group(1).leave();
  cluster.run_for(milliseconds(3));
  cluster.group(1).close_links();
  REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
  for (const int32_t r : {0, 1, 2, 3}) CHECK(answers[static_cast<size_t>(r)]->is_ok());
  REQUIRE(cluster.run_until_done(strict, milliseconds(1000)));
  for (const auto& a : strict) CHECK(a->status.culprit() == Rank(4));
  answers = call_all(cluster, skip_sum_call(10), {0, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
  CHECK(all_ok(answers));
}

TEST_CASE(
    "an excluded member gets an error at once when too few are left to take it back") {
  Cluster cluster(with_heartbeats(4));
  cluster.set_all_delays(milliseconds(1));
  auto answers = call_all(cluster, skip_sum_call(300), {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.stop(3, milliseconds(1000));
  answers = call_all(cluster, skip_sum_call(300), {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(900)));
  REQUIRE_FALSE(cluster.group(0).view().has(Rank(3)));
  for (const int32_t r : {0, 1, 2}) cluster.group(r).leave();
  cluster.run_for(milliseconds(10));
  for (const int32_t r : {0, 1, 2}) cluster.group(r).close_links();
  cluster.run_for(milliseconds(1500));
  const auto late = call_all(cluster, skip_sum_call(300), {3});
  REQUIRE(cluster.run_until_done(late, milliseconds(500)));
  CHECK(late[0]->status.code() == Code::kPeerLost);
}

TEST_CASE("a member is busy until the others have all results of its calls") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.network.set_delay(Rank(2), Rank(3), milliseconds(80));
  auto answers = call_all(cluster, skip_sum_call(300), {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  REQUIRE(all_ok(answers));
  cluster.group(0).ask_acked();
  cluster.run_for(milliseconds(10));
  CHECK(cluster.group(0).is_drained());
  CHECK(cluster.group(0).is_busy());  // rank 3 lacks the result of rank 2
  cluster.run_for(milliseconds(100));
  CHECK_FALSE(cluster.group(0).is_busy());  // although rank 3 has not called
  const auto late = call_all(cluster, skip_sum_call(300), {3});
  CHECK(late[0]->is_ok());
}

TEST_CASE(
    "a member that stands still or has learned of a failure keeps no other member "
    "busy") {
  Cluster cluster(with_heartbeats(4));
  cluster.set_all_delays(milliseconds(1));
  auto answers = call_all(cluster, skip_sum_call(300), {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  collectives::Call other = skip_sum_call(300);
  other.policy.ceiling += milliseconds(1);
  answers = call_all(cluster, skip_sum_call(300), {0});
  call_all(cluster, other, {1});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  CHECK(answers[0]->status.code() == Code::kInvalidArgument);
  cluster.group(0).ask_acked();
  cluster.run_for(milliseconds(5));
  CHECK_FALSE(cluster.group(0).is_busy());  // ranks 2 and 3 have not called it
  answers = call_all(cluster, skip_sum_call(300), {2, 3});
  cluster.run_for(milliseconds(5));
  cluster.stop(3, milliseconds(2000));
  answers = call_all(cluster, skip_sum_call(300), {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
  cluster.run_for(milliseconds(500));
  CHECK_FALSE(cluster.group(0).is_busy());
}

TEST_CASE("a group that has lost half of its members says why it cannot go on") {
  Cluster cluster({.size = 2});
  cluster.set_all_delays(milliseconds(1));
  auto answers = call_all(cluster, skip_sum_call(10), {0, 1});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.kill(1);
  answers = call_all(cluster, skip_sum_call(10), {0});
  REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
  CHECK(answers[0]->status.code() == Code::kPeerLost);
  CHECK(answers[0]->status.culprit() == Rank(1));
  CHECK(cluster.group(0).view().number == 1);
}

TEST_CASE("a member that stands still is excluded, rejoins and gets the same results") {
  Cluster cluster(with_heartbeats(4));
  cluster.set_all_delays(milliseconds(1));
  auto answers = call_all(cluster, skip_sum_call(300), {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.stop(3, milliseconds(2000));
  std::vector<std::vector<AnswerPtr>> missed;
  for (int i = 0; i < 3; ++i) {
    missed.push_back(call_all(cluster, skip_sum_call(300), {0, 1, 2}));
    REQUIRE(cluster.run_until_done(missed.back(), milliseconds(1000)));
    REQUIRE(all_ok(missed.back()));
  }
  CHECK(cluster.group(0).view().number >= 2);
  cluster.run_for(milliseconds(13000));
  for (int32_t r = 0; r < 4; ++r) {
    CHECK(cluster.group(r).view().has(Rank(3)));
    CHECK(cluster.group(r).view() == cluster.group(0).view());
  }
  // Its caller gets the missed results at once, and contributes to later operations.
  for (const auto& others : missed) {
    const auto late = call_all(cluster, skip_sum_call(300), {3});
    REQUIRE(cluster.run_until_done(late, milliseconds(500)));
    REQUIRE(late[0]->is_ok());
    CHECK(late[0]->output == others[0]->output);
    CHECK(late[0]->outcome.skipped == std::vector<Rank>{Rank(3)});
  }
  for (int i = 0; i < 20; ++i) {
    answers = call_all(cluster, skip_sum_call(300), {0, 1, 2, 3});
    REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
    CHECK(all_ok(answers));
    cluster.run_for(milliseconds(5));
  }
  CHECK(answers[0]->outcome.skipped.empty());
}

TEST_CASE("results that were dropped behind an open strict call are not promised") {
  ClusterOptions options{.size = 4};
  options.log_bytes = 12 << 10;
  Cluster cluster(options);
  const Call call = skip_sum_call(1000);
  cluster.set_all_delays(milliseconds(1));
  auto answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  std::vector<AnswerPtr> barriers;  // the first tells all that all have the result
  for (const int32_t r : {0, 1, 2, 3}) barriers.push_back(cluster.barrier(r));
  REQUIRE(cluster.run_until_done(barriers, milliseconds(100)));
  // Rank 2 gets the results of rank 0 last. It acknowledges them to rank 1, but not to
  // rank 0. So rank 1 drops the results beyond its log, and rank 0 keeps them for rank
  // 3.
  cluster.network.set_delay(Rank(0), Rank(2), milliseconds(10));
  const TimePoint back = cluster.clock.now() + milliseconds(1000);
  cluster.stop(3, milliseconds(1000));
  for (const int32_t r : {0, 1, 2}) barriers.push_back(cluster.barrier(r));
  const auto missed = call_all(cluster, call, {0, 1, 2});
  const auto last = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done({missed[0], last[0]}, milliseconds(500)));
  REQUIRE_FALSE(missed[2]->is_done());
  cluster.network.stall(Rank(2), Rank(0), back + milliseconds(15));
  REQUIRE(cluster.run_until_done({missed[2], last[2]}, milliseconds(100)));
  for (const int32_t r : {0, 2}) (void)cluster.send(r, 1, 0, Bytes(8));
  CHECK_FALSE(cluster.group(0).view().has(Rank(3)));
  cluster.run_for(milliseconds(3000));
  for (int32_t r = 0; r < 4; ++r) CHECK(cluster.group(r).view().has(Rank(3)));
  CHECK_FALSE(barriers[5]->is_done());
  barriers.push_back(cluster.barrier(3));
  for (const auto& others : {missed, last}) {
    const auto late = call_all(cluster, call, {3});
    REQUIRE(cluster.run_until_done(late, milliseconds(500)));
    CHECK(late[0]->is_ok());
    CHECK(late[0]->output == others[0]->output);
  }
  REQUIRE(cluster.run_until_done(barriers, milliseconds(100)));
  CHECK(all_ok(barriers));
}

TEST_CASE("an owner gives up a full result whose bytes are stuck") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  for (int i = 0; i < 12; ++i)
    REQUIRE(cluster.run_until_done(call_all(cluster, skip_sum_call(4000), {0, 1, 2, 3}),
                                   milliseconds(100)));
  const auto answers = call_all(cluster, skip_sum_call(4000), {0, 1, 2, 3});
  cluster.run_for(std::chrono::microseconds(500));  // all contributions have left
  // A result of 4,000 bytes would take 2 s.
  for (const int32_t r : {0, 1, 2}) cluster.network.set_rate(Rank(3), Rank(r), 2'000);
  cluster.run_for(milliseconds(10));
  CHECK_FALSE(answers[3]->is_done());
  REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
  CHECK(all_ok(answers));
  for (const auto& answer : answers) CHECK(answer->output == answers[0]->output);
}

TEST_CASE(
    "an error reaches an excluded member that has lost the rank which reported it") {
  Cluster cluster(with_heartbeats(5));
  cluster.set_all_delays(milliseconds(1));
  // Ranks 1 and 2 exclude each other, and rank 2 is later.
  for (const int32_t r : {0, 1, 3, 4})
    cluster.network.set_delay(Rank(r), Rank(2), milliseconds(5));
  auto answers = call_all(cluster, skip_sum_call(10), {0, 1, 2, 3, 4});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  // Rank 1 calls an operation that rank 2 then refuses. Meanwhile they have no
  // connection, and rank 1 stands still.
  auto late = call_all(cluster, skip_sum_call(10), {1});
  cluster.run_for(milliseconds(2));
  const TimePoint back = cluster.clock.now() + milliseconds(400);
  cluster.stop(1, milliseconds(400));
  cluster.network.cut(Rank(2), Rank(1), back + milliseconds(5));
  cluster.group(2).refuse({Code::kInvalidArgument, "rank 2 has no such tensor"});
  cluster.run_for(milliseconds(300));
  REQUIRE_FALSE(cluster.group(0).view().has(Rank(1)));
  answers = call_all(cluster, skip_sum_call(10), {0, 3, 4});
  for (const auto& a : answers) CHECK(a->status.code() == Code::kInvalidArgument);
  REQUIRE(cluster.run_until_done(late, milliseconds(1000)));
  CHECK(late[0]->status.message().find("no such tensor") != std::string::npos);
  // After that, rank 1 calls with the others.
  cluster.run_for(milliseconds(1000));
  answers = call_all(cluster, skip_sum_call(10), {0, 1, 3, 4});
  REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
  CHECK(all_ok(answers));
}

TEST_CASE(
    "a member that alone has the result of a call that failed elsewhere is refused") {
  ClusterOptions options = with_heartbeats(4);
  options.min_shard_bytes = 1 << 20;  // rank 0 owns all
  Cluster cluster(options);
  cluster.set_all_delays(milliseconds(1));
  Call call = skip_sum_call(10);
  call.policy.min_contributors = 4;
  auto answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  // Rank 0 closes with all members. All that it sends from here on arrives when it is
  // excluded.
  const TimePoint back = cluster.clock.now() + milliseconds(12'000);
  cluster.network.set_tap(
      [back](Rank from, Rank, const transport::FrameHeader&, TimePoint arrives) {
        return from == Rank(0) ? std::max(arrives, back) : arrives;
      });
  answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(11'000)));
  CHECK(answers[0]->is_ok());
  for (const int32_t r : {1, 2, 3})
    CHECK(answers[static_cast<size_t>(r)]->status.code() == Code::kPeerLost);
  REQUIRE_FALSE(cluster.group(1).view().has(Rank(0)));
  cluster.run_for(milliseconds(12'000));
  CHECK(cluster.group(0).own_state().member_state() == engine::MemberState::kRefused);
  const auto later = call_all(cluster, call, {0});
  REQUIRE(cluster.run_until_done(later, milliseconds(10)));
  CHECK(later[0]->status.code() == Code::kPeerLost);
  CHECK(later[0]->status.message().find("up to operation 2, no other member has") !=
        std::string::npos);
  cluster.network.set_tap({});
}

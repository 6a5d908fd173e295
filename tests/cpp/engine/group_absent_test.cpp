// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of members whose processes are stopped. Until heartbeat.timeout_ms the limits
// of the policy hold for them as for members that compute.
#include <algorithm>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using engine::MemberState;

namespace {

ClusterOptions patient(int32_t size, Duration timeout = milliseconds(5000)) {
  ClusterOptions options{.size = size};
  options.heartbeat = {.interval = milliseconds(20), .timeout = timeout};
  return options;
}

Call skipping_call(uint32_t most_skips = 1000) {
  Call call = skip_sum_call(300);
  call.policy.max_consecutive_skips = most_skips;
  return call;
}

bool is_out(Cluster& cluster, int32_t rank) {
  return !cluster.group(0).view().has(Rank(rank));
}

// Ranks 0 and 1 of three call again and again, until a call takes longer than `limit`.
// Returns their answers, of which the last are still under way.
std::vector<std::vector<AnswerPtr>> call_until_held(Cluster& cluster, const Call& call,
                                                    Duration limit) {
  std::vector<std::vector<AnswerPtr>> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(call_all(cluster, call, {0, 1}));
    if (!cluster.run_until_done(all.back(), limit)) return all;
    REQUIRE(all_ok(all.back()));
  }
  FAIL("no call was held back");
  return all;
}

}  // namespace

TEST_CASE(
    "a stopped member with a full log is waited for, like a member that computes") {
  ClusterOptions options = patient(3);
  options.log_bytes = 16 << 10;
  Cluster cluster(options);
  cluster.set_all_delays(milliseconds(1));
  const Call call = skipping_call();
  auto answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.stop(2, milliseconds(1500));
  const TimePoint begin = cluster.clock.now();
  const auto missed = call_until_held(cluster, call, milliseconds(700));
  REQUIRE(missed.size() >= 3);
  CHECK(is_out(cluster, 2));
  // The others wait until it is back, and no longer.
  REQUIRE_FALSE(cluster.run_until_done(missed.back(), milliseconds(100)));
  cluster.run_until(begin + milliseconds(1500));
  // Its log is empty then, because the results that it missed are in its own memory.
  for (size_t i = 0; i < missed.size(); ++i) {
    cluster.run_for(milliseconds(20));
    const auto late = call_all(cluster, call, {2});
    REQUIRE(cluster.run_until_done(late, milliseconds(1500)));
    REQUIRE(late[0]->is_ok());
    REQUIRE(cluster.run_until_done(missed[i], milliseconds(1500)));
    CHECK(late[0]->output == missed[i][0]->output);
  }
  CHECK_FALSE(is_out(cluster, 2));
}

TEST_CASE(
    "a stopped member misses no more operations in a row than the policy allows") {
  const uint32_t most = GENERATE(1, 4);
  Cluster cluster(patient(3));
  cluster.set_all_delays(milliseconds(1));
  const Call call = skipping_call(most);
  auto answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.stop(2, milliseconds(1500));
  const auto missed = call_until_held(cluster, call, milliseconds(700));
  cluster.run_for(milliseconds(1500));
  for (const auto& others : missed) {
    const auto late = call_all(cluster, call, {2});
    REQUIRE(cluster.run_until_done(late, milliseconds(1500)));
    REQUIRE(late[0]->is_ok());
    REQUIRE(cluster.run_until_done(others, milliseconds(1500)));
    CHECK(late[0]->output == others[0]->output);
  }
  uint32_t skips = 0;
  for (const auto& others : missed)
    skips += others[0]->outcome.skipped == std::vector<Rank>{Rank(2)};
  CHECK(skips == most);
  CHECK(missed.back()[0]->outcome.skipped.empty());
}

TEST_CASE(
    "a member that is stopped for longer than heartbeat.timeout_ms delays no call") {
  ClusterOptions options = patient(3, milliseconds(1000));
  options.log_bytes = 16 << 10;
  Cluster cluster(options);
  cluster.set_all_delays(milliseconds(1));
  const Call call = skipping_call();
  auto answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.stop(2, milliseconds(60'000));
  const TimePoint begin = cluster.clock.now();
  const auto missed = call_until_held(cluster, call, milliseconds(500));
  REQUIRE(cluster.run_until_done(missed.back(), milliseconds(1000)));
  CHECK(all_ok(missed.back()));
  CHECK(cluster.clock.now() - begin < milliseconds(1300));
  for (int i = 0; i < 10; ++i) {
    answers = call_all(cluster, call, {0, 1});
    REQUIRE(cluster.run_until_done(answers, milliseconds(100)));
  }
}

TEST_CASE(
    "a call that is held back for a member goes on at once when this member dies") {
  Cluster cluster(patient(3));
  cluster.set_all_delays(milliseconds(1));
  const Call call = skipping_call(2);
  auto answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.stop(2, milliseconds(60'000));
  const auto missed = call_until_held(cluster, call, milliseconds(500));
  cluster.kill(2);
  REQUIRE(cluster.run_until_done(missed.back(), milliseconds(100)));
  CHECK(all_ok(missed.back()));
}

TEST_CASE("a call that is held back for a member that is refused goes on at once") {
  Cluster cluster(patient(3));
  cluster.set_all_delays(milliseconds(1));
  const Call call = skipping_call(2);
  auto answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  // The results of 2 are on slow wires. It exposes a full result, and is stopped.
  cluster.network.set_tap(
      [](Rank from, Rank, const transport::FrameHeader& header, TimePoint arrives) {
        const bool is_slow =
            from == Rank(2) && header.kind == transport::FrameKind::kResult;
        return is_slow ? arrives + milliseconds(2000) : arrives;
      });
  answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done({answers[2]}, milliseconds(10)));
  cluster.stop(2, milliseconds(800));
  REQUIRE(cluster.run_until_done(answers, milliseconds(700)));
  REQUIRE(answers[2]->outcome.skipped.empty());
  REQUIRE(answers[0]->outcome.skipped == std::vector<Rank>{Rank(2)});
  const auto missed = call_until_held(cluster, call, milliseconds(100));
  REQUIRE(cluster.run_until_done(missed.back(), milliseconds(900)));
  CHECK(cluster.group(2).own_state().member_state() == MemberState::kRefused);
  CHECK(all_ok(missed.back()));
  // It copies a state, and takes part again.
  cluster.run_for(milliseconds(20));
  const Seq seq(2 + missed.size());
  REQUIRE(cluster.group(0).outlook().is_acked(seq, Rank(2)));
  REQUIRE(cluster.group(2).skip_through(seq).is_ok());
  cluster.group(2).end_turn();
  cluster.run_for(milliseconds(50));
  CHECK(cluster.group(2).own_state().member_state() == MemberState::kMember);
  answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(3000)));
  CHECK(all_ok(answers));
}

TEST_CASE(
    "a call that is held back ends in time, and its text names the awaited member") {
  Cluster cluster(patient(3));
  cluster.set_all_delays(milliseconds(1));
  const Call call = skipping_call(2);
  auto answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.stop(2, milliseconds(60'000));
  for (int i = 0; i < 2; ++i) {
    answers = call_all(cluster, call, {0, 1});
    REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
  }
  const Bytes input = random_elements(call.dtype, call.count, 7);
  const auto held = cluster.allreduce(0, call, input, milliseconds(300));
  const auto behind = cluster.barrier(0, milliseconds(200));
  cluster.run_for(milliseconds(250));
  CHECK_FALSE(held->is_done());
  cluster.run_for(milliseconds(100));
  REQUIRE(held->is_done());
  INFO(held->status.message());
  CHECK(held->status.code() == Code::kTimedOut);
  CHECK(held->status.message().find("held back for rank 2") != std::string::npos);
  CHECK(behind->is_done());
}

TEST_CASE(
    "a member that is done stays for a stopped member, until its silence is too long") {
  const bool comes_back = GENERATE(true, false);
  Cluster cluster(patient(3, milliseconds(3000)));
  cluster.set_all_delays(milliseconds(1));
  const Call call = skipping_call();
  auto answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.stop(2, milliseconds(comes_back ? 1000 : 60'000));
  answers = call_all(cluster, call, {0, 1});
  REQUIRE(cluster.run_until_done(answers, milliseconds(800)));
  REQUIRE(is_out(cluster, 2));
  for (const int32_t r : {0, 1}) cluster.group(r).ask_acked();
  cluster.run_for(milliseconds(100));
  CHECK(cluster.group(0).is_busy());
  cluster.run_for(milliseconds(comes_back ? 1500 : 4000));
  CHECK_FALSE(cluster.group(0).is_busy());
  CHECK_FALSE(cluster.group(1).is_busy());
  if (!comes_back) return;
  const auto late = call_all(cluster, call, {2});
  REQUIRE(cluster.run_until_done(late, milliseconds(10)));
  CHECK(late[0]->output == answers[0]->output);
}

TEST_CASE("an excluded member with a result ends at once if its group cannot go on") {
  Cluster cluster(with_heartbeats(4));
  cluster.set_all_delays(milliseconds(1));
  const Call call = skipping_call();
  auto answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  cluster.run_for(milliseconds(30));  // rank 3 has the result, but has not called
  // It will learn that it is excluded, and ask too late to rejoin.
  for (const int32_t r : {0, 1, 2})
    cluster.network.set_delay(Rank(3), Rank(r), milliseconds(500));
  cluster.stop(3, milliseconds(1000));
  answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(900)));
  REQUIRE(is_out(cluster, 3));
  cluster.run_for(milliseconds(1000));
  REQUIRE(cluster.group(3).own_state().member_state() == MemberState::kReturning);
  for (const int32_t r : {0, 1, 2}) cluster.group(r).leave();
  cluster.run_for(milliseconds(10));
  for (const int32_t r : {0, 1, 2}) cluster.group(r).close_links();
  cluster.run_for(milliseconds(100));
  const auto late = call_all(cluster, call, {3});
  REQUIRE(cluster.run_until_done(late, milliseconds(500)));
  CHECK(late[0]->status.code() == Code::kPeerLost);
}

TEST_CASE("a member at its limit of skips knows that it is waited for") {
  Cluster cluster(patient(3));
  cluster.set_all_delays(milliseconds(1));
  const Call call = skipping_call(2);
  auto answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  for (int i = 0; i < 2; ++i) {
    CHECK_FALSE(cluster.group(2).outlook().is_waited_for());
    answers = call_all(cluster, call, {0, 1});
    REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  }
  cluster.run_for(milliseconds(50));
  CHECK_FALSE(cluster.group(2)
                  .outlook()
                  .is_waited_for());  // the others have made no more calls
  answers = call_all(cluster, call, {0, 1});
  cluster.run_for(milliseconds(50));
  CHECK(cluster.group(2).outlook().is_waited_for());
  CHECK_FALSE(cluster.group(0).outlook().is_waited_for());
  const auto late = call_all(cluster, call, {2, 2, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  CHECK_FALSE(cluster.group(2).outlook().is_waited_for());
}

TEST_CASE("a seal is sent when the others have the results, whatever its giver calls") {
  Cluster cluster(patient(3));
  cluster.set_all_delays(milliseconds(1));
  const Call call = skipping_call(3);
  auto answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  answers = call_all(cluster, call, {0, 1});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  answers = call_all(cluster, call, {0, 1});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  // Rank 1 has not acknowledged the result yet.
  REQUIRE_FALSE(cluster.group(0).outlook().is_acked(Seq(3), Rank(2)));
  cluster.group(0).seal({Seq(3), Rank(2), 7});
  const auto word = cluster.receive(2, 0, 7, sizeof(int64_t));
  CHECK_FALSE(word->is_done());
  // From here on its giver only makes calls.
  (void)call_all(cluster, call, {0, 1});
  (void)call_all(cluster, call, {0, 1});
  REQUIRE(cluster.run_until_done({word}, milliseconds(1000)));
  int64_t value = 0;
  std::memcpy(&value, word->output.data(), sizeof value);
  CHECK(value == 1);
  // The next seal has nothing to wait for.
  const auto again = cluster.receive(2, 1, 8, sizeof(int64_t));
  cluster.group(1).seal({Seq(1), Rank(2), 8});
  CHECK(cluster.run_until_done({again}, milliseconds(20)));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of members that are excluded for a full log, and of members that skip through
// the operations that they have missed.
#include <algorithm>

#include "harness/catch.h"
#include "harness/cluster.h"
#include "membership/view_message.h"

using namespace aikido;
using namespace aikido::testing;
using engine::MemberState;

namespace {

Call leaving_call(size_t count) {
  Call call = skip_sum_call(count);
  call.policy.log_full = straggler::LogFull::kLeave;
  return call;
}

// A call that needs two contributors, and that waits if its log is full.
Call waiting_call() {
  Call call = leaving_call(20'000);
  call.policy.log_full = straggler::LogFull::kWait;
  call.policy.min_contributors = 2;
  return call;
}

ClusterOptions small_log() {
  ClusterOptions options{.size = 4};
  options.log_bytes = 8 << 10;
  options.heartbeat.interval = milliseconds(20);
  options.heartbeat.timeout = milliseconds(2000);
  return options;
}

// All members call once. Then rank 3 is late until its log is full. Returns the number
// of calls.
uint64_t fill_log(Cluster& cluster, const Call& call, Duration limit) {
  cluster.set_all_delays(milliseconds(1));
  auto answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  for (int i = 0; i < 8; ++i) {
    answers = call_all(cluster, call, {0, 1, 2});
    REQUIRE(cluster.run_until_done(answers, limit));
    REQUIRE(all_ok(answers));
    cluster.run_for(milliseconds(10));
  }
  return 9;
}

}  // namespace

TEST_CASE("a member with a full log is excluded without a wait, and rejoins") {
  Cluster cluster(small_log());
  const Call call = leaving_call(500);
  const uint64_t seq = fill_log(cluster, call, milliseconds(60));
  CHECK_FALSE(cluster.group(0).view().has(Rank(3)));
  CHECK(cluster.group(0).own_state().member_state() == MemberState::kMember);
  CHECK(cluster.group(3).own_state().member_state() == MemberState::kRefused);
  // The errors of its calls say what to do.
  const auto fails = call_all(cluster, call, {3});
  REQUIRE(cluster.run_until_done(fails, milliseconds(10)));
  CHECK(fails[0]->status.code() == Code::kPeerLost);
  CHECK(fails[0]->status.message().find("copy the state of another rank, as") !=
        std::string::npos);
  cluster.run_for(milliseconds(50));
  REQUIRE(cluster.group(0).outlook().is_acked(Seq(seq), Rank(3)));
  REQUIRE(cluster.group(3).skip_through(Seq(seq)).is_ok());
  cluster.group(3).end_turn();
  cluster.run_for(milliseconds(1000));
  CHECK(cluster.group(3).own_state().member_state() == MemberState::kMember);
  for (int32_t r = 0; r < 4; ++r) CHECK(cluster.group(r).view().has(Rank(3)));
  for (int i = 0; i < 3; ++i) {
    const auto answers = call_all(cluster, call, {0, 1, 2, 3});
    REQUIRE(cluster.run_until_done(answers, milliseconds(100)));
    CHECK(all_ok(answers));
    CHECK(answers[3]->outcome.skipped.empty());
  }
}

TEST_CASE("all policies share one log for a late member") {
  Cluster cluster(small_log());
  cluster.set_all_delays(milliseconds(1));
  Call call = leaving_call(500);
  for (const uint32_t num : {1U, 2U, 3U}) {
    call.policy.warmup_operations = num;
    CHECK(cluster.group(0).view().has(Rank(3)));
    const auto answers = call_all(cluster, call, {0, 1, 2});
    REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
    CHECK(all_ok(answers));
    cluster.run_for(milliseconds(10));
  }
  CHECK_FALSE(cluster.group(0).view().has(Rank(3)));
}

TEST_CASE("a full log excludes no member if full sums need all members") {
  Cluster cluster(small_log());
  cluster.set_all_delays(milliseconds(1));
  Call full = allreduce_call(DType::kFloat32, 500, ReduceOp::kSum);
  full.policy.rebalance = true;
  auto answers = call_all(cluster, full, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  const Call call = leaving_call(500);
  answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
  // The log has room for three operations, and for half as many again. Then rank 3 is
  // waited for.
  int num_ended = 0;
  while (num_ended < 20) {
    answers = call_all(cluster, call, {0, 1, 2});
    if (!cluster.run_until_done(answers, milliseconds(500))) break;
    ++num_ended;
  }
  CHECK(num_ended >= 4);
  CHECK(num_ended < 9);
  CHECK(cluster.group(0).view().has(Rank(3)));
  std::vector<AnswerPtr> late;
  for (int i = 0; i <= num_ended; ++i) late.push_back(call_all(cluster, call, {3})[0]);
  REQUIRE(cluster.run_until_done(late, milliseconds(500)));
  REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
  CHECK(all_ok(answers));
  answers = call_all(cluster, full, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
  CHECK(all_ok(answers));
}

TEST_CASE("a member that never rejoins delays no call") {
  Cluster cluster(small_log());
  const Call call = leaving_call(500);
  fill_log(cluster, call, milliseconds(60));
  for (int i = 0; i < 60; ++i) {
    const auto answers = call_all(cluster, call, {0, 1, 2});
    REQUIRE(cluster.run_until_done(answers, milliseconds(30)));
    REQUIRE(all_ok(answers));
    CHECK(answers[0]->outcome.contributors.size() == 3);
  }
  CHECK_FALSE(cluster.group(0).view().has(Rank(3)));
  // After a death fewer than a quorum are left, which is an error and no smaller sum.
  cluster.kill(2);
  const auto fails = call_all(cluster, call, {0, 1});
  REQUIRE(cluster.run_until_done(fails, milliseconds(12'000)));
  for (const auto& answer : fails)
    CHECK(answer->status.message().find("fewer than min_contributors=3") !=
          std::string::npos);
}

TEST_CASE(
    "an excluded member gets an error when the view loses its majority, as does its "
    "seal") {
  Cluster cluster(small_log());
  const Call call = leaving_call(500);
  const uint64_t seq = fill_log(cluster, call, milliseconds(60));
  cluster.run_for(milliseconds(50));
  REQUIRE(cluster.group(3).own_state().member_state() == MemberState::kRefused);
  // A state that no member can acknowledge any more.
  cluster.group(0).seal({Seq(seq + 1), Rank(3), 7});
  const auto word = cluster.receive(3, 0, 7, sizeof(int64_t));
  const auto fails = call_all(cluster, call, {3});
  cluster.kill(1);
  cluster.kill(2);
  REQUIRE(cluster.run_until_done({word}, milliseconds(50)));
  int64_t value = 0;
  std::memcpy(&value, word->output.data(), sizeof value);
  CHECK(value == -1);
  cluster.run_for(milliseconds(1000));
  CHECK(cluster.group(3).own_state().member_state() == MemberState::kEnded);
  const auto later = call_all(cluster, call, {3});
  REQUIRE(cluster.run_until_done(later, milliseconds(150)));
  CHECK(later[0]->status.culprit() == Rank(1));
  CHECK(later[0]->status.message().find("rank 1, rank 2 left the group or failed") !=
        std::string::npos);
}

TEST_CASE("results between the copied state and the return arrive as in any return") {
  Cluster cluster(small_log());
  const Call call = leaving_call(500);
  const uint64_t seq = fill_log(cluster, call, milliseconds(60));
  cluster.run_for(milliseconds(50));
  REQUIRE(cluster.group(3).skip_through(Seq(seq)).is_ok());
  cluster.group(3).end_turn();
  // Before a view has taken it back.
  const auto missed = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(missed, milliseconds(100)));
  const auto late = call_all(cluster, call, {3});
  REQUIRE(cluster.run_until_done(late, milliseconds(2000)));
  REQUIRE(late[0]->is_ok());
  CHECK(late[0]->output == missed[0]->output);
  CHECK(late[0]->outcome.skipped == std::vector<Rank>{Rank(3)});
}

TEST_CASE(
    "a member that skips through an operation gets no more data of it, and still "
    "serves") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  const Call call = leaving_call(40'000);
  auto answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
  // Links to rank 3 are slow. The others have ended long before it has any result.
  for (const int32_t r : {0, 1, 2}) cluster.network.set_rate(Rank(r), Rank(3), 100'000);
  cluster.network.set_rate(Rank(3), Rank(0), 0);
  answers = call_all(cluster, call, {0, 1, 2});
  // It skips through an operation in which it owns a shard that is not closed.
  cluster.run_for(milliseconds(2));
  REQUIRE(cluster.group(3).skip_through(Seq(2)).is_ok());
  cluster.group(3).end_turn();
  REQUIRE(cluster.run_until_done(answers, milliseconds(4000)));
  CHECK(all_ok(answers));
  CHECK(answers[0]->outcome.skipped == std::vector<Rank>{Rank(3)});
  CHECK(cluster.group(3).own_state().known_up_to() == 2);
  for (const int32_t r : {0, 1, 2}) cluster.network.set_rate(Rank(r), Rank(3), 0);
  answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(2000)));
  CHECK(all_ok(answers));
}

TEST_CASE("data that is queued for a member that skips through is cancelled") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  const Call call = leaving_call(40'000);
  auto answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
  for (const int32_t r : {0, 1, 2}) cluster.network.set_rate(Rank(r), Rank(3), 20'000);
  answers = call_all(cluster, call, {0, 1, 2});
  REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
  cluster.run_for(milliseconds(300));  // late results are on their way
  cluster.group(0).ask_acked();
  cluster.run_for(milliseconds(5));
  REQUIRE(cluster.group(0).outlook().is_acked(Seq(2), Rank(3)));
  REQUIRE(cluster.group(3).skip_through(Seq(2)).is_ok());
  cluster.group(3).end_turn();
  cluster.run_for(milliseconds(50));
  for (const int32_t r : {0, 1, 2})
    CHECK(cluster.group(r).counters().cancelled_bytes.load() > 30'000);
}

TEST_CASE("a skip that is not possible is refused with a reason, and changes nothing") {
  Cluster cluster({.size = 3});
  cluster.set_all_delays(milliseconds(1));
  const Call call = leaving_call(300);
  REQUIRE(
      cluster.run_until_done(call_all(cluster, call, {0, 1, 2}), milliseconds(200)));
  const auto strict = allreduce_call(DType::kFloat32, 300);
  const auto waiting = call_all(cluster, strict, {0, 1});
  cluster.run_for(milliseconds(5));
  Status passed = cluster.group(2).skip_through(Seq(2));
  CHECK(passed.code() == Code::kInvalidArgument);
  CHECK(passed.message().find("collective 2, is no all_reduce that may skip") !=
        std::string::npos);
  passed = cluster.group(2).skip_through(Seq(0));
  CHECK(passed.message().find("it has called 1") != std::string::npos);
  passed = cluster.group(0).skip_through(Seq(3));
  CHECK(passed.message().find("collective 2, is under way") != std::string::npos);
  auto all = call_all(cluster, strict, {2});
  all.insert(all.end(), waiting.begin(), waiting.end());
  REQUIRE(cluster.run_until_done(all, milliseconds(100)));
  CHECK(all_ok(all));
  // Rank 2 skips through an operation of which no member has told it.
  REQUIRE(cluster.group(2).skip_through(Seq(3)).is_ok());
  const auto fails = call_all(cluster, strict, {0, 1});
  REQUIRE(cluster.run_until_done(fails, milliseconds(100)));
  CHECK(fails[0]->status.code() == Code::kInvalidArgument);
  CHECK(fails[0]->status.message().find("needs rank 2, which has skipped through") !=
        std::string::npos);
}

TEST_CASE(
    "a full sum cannot be skipped through, though a view could do without the member") {
  Cluster cluster({.size = 3});
  cluster.set_all_delays(milliseconds(1));
  Call full = allreduce_call(DType::kFloat32, 300);
  full.policy.rebalance = true;
  auto answers = call_all(cluster, full, {0, 1});
  cluster.run_for(milliseconds(5));
  const Status passed = cluster.group(2).skip_through(Seq(1));
  CHECK(passed.code() == Code::kInvalidArgument);
  answers.push_back(call_all(cluster, full, {2})[0]);
  REQUIRE(cluster.run_until_done(answers, milliseconds(100)));
  CHECK(all_ok(answers));
}

TEST_CASE("a member without a skipped result leaves a rejoining member to the others") {
  Cluster cluster(with_heartbeats(4));
  cluster.set_all_delays(milliseconds(1));
  const Call call = waiting_call();
  auto answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
  cluster.stop(3, milliseconds(2000));
  cluster.run_for(milliseconds(300));
  REQUIRE_FALSE(cluster.group(0).view().has(Rank(3)));
  // Rank 0 is late, and its missed data comes slowly. So it copies the state of rank 1.
  for (const int32_t r : {1, 2}) cluster.network.set_rate(Rank(r), Rank(0), 20'000);
  const auto missed = call_all(cluster, call, {1, 2});
  REQUIRE(cluster.run_until_done(missed, milliseconds(1000)));
  cluster.run_for(milliseconds(100));
  REQUIRE(cluster.group(1).outlook().is_acked(Seq(2), Rank(0)));
  REQUIRE(cluster.group(0).skip_through(Seq(2)).is_ok());
  cluster.group(0).end_turn();
  for (const int32_t r : {1, 2}) cluster.network.set_rate(Rank(r), Rank(0), 0);
  cluster.run_for(milliseconds(4000));
  // Rank 3 asks rank 0 first.
  for (int32_t r = 0; r < 4; ++r) CHECK(cluster.group(r).view().has(Rank(3)));
  const auto late = call_all(cluster, call, {3});
  REQUIRE(cluster.run_until_done(late, milliseconds(500)));
  CHECK(late[0]->output == missed[0]->output);
}

TEST_CASE("a member is not taken back on trust if its results were dropped") {
  Cluster cluster(with_heartbeats(4));
  cluster.set_all_delays(milliseconds(1));
  const Call call = waiting_call();
  auto answers = call_all(cluster, call, {0, 1, 2, 3});
  REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
  // Rank 0 is late. It copies the state of rank 1 before it learns that rank 3 is
  // excluded.
  for (const int32_t r : {1, 2, 3}) cluster.network.set_rate(Rank(r), Rank(0), 20'000);
  const auto missed = call_all(cluster, call, {1, 2, 3});
  REQUIRE(cluster.run_until_done(missed, milliseconds(1000)));
  cluster.run_for(milliseconds(100));
  REQUIRE(cluster.group(1).outlook().is_acked(Seq(2), Rank(0)));
  REQUIRE(cluster.group(0).skip_through(Seq(2)).is_ok());
  cluster.group(0).end_turn();
  for (const int32_t r : {1, 2, 3}) cluster.network.set_rate(Rank(r), Rank(0), 0);
  cluster.stop(3, milliseconds(60'000));
  cluster.run_for(milliseconds(500));
  REQUIRE(cluster.group(0).view().has(Rank(0)));
  REQUIRE_FALSE(cluster.group(0).view().has(Rank(3)));

  membership::ViewMessage join;
  join.step = membership::ViewStep::kJoin;
  join.view = cluster.group(0).view().number;
  join.report.known = join.report.acked = Seq(2);
  join.report.kept = Seq(3);
  join.report.lost = RankSet(4);
  const bool has_another_result = GENERATE(false, true);
  if (has_another_result) join.report.received = {{Seq(2), 0, 12345}};
  const auto bytes = membership::encode(join);
  transport::FrameHeader header;
  header.kind = transport::FrameKind::kView;
  header.called = 2;
  header.payload_bytes = static_cast<uint32_t>(bytes.size());
  header.total_bytes = bytes.size();
  auto* handler = cluster.group(0).handler();
  auto place = handler->on_frame_begin(Rank(3), header, {});
  REQUIRE(place.is_ok());
  std::copy(bytes.begin(), bytes.end(), *place);
  handler->on_frame(Rank(3), header);
  // Rank 0 asks the others for a view with rank 3, or says that only they can decide.
  int num_asked = 0;
  cluster.network.set_tap(
      [&](Rank from, Rank to, const transport::FrameHeader& h, TimePoint arrives) {
        if (h.kind == transport::FrameKind::kView && from == Rank(0) && to == Rank(1))
          ++num_asked;
        return arrives;
      });
  cluster.run_for(milliseconds(20));
  CHECK((num_asked > 0) == !has_another_result);
}

TEST_CASE("a state is not acknowledged while a member lacks a result") {
  Cluster cluster({.size = 3});
  cluster.set_all_delays(milliseconds(1));
  const Call call = leaving_call(300);
  REQUIRE(
      cluster.run_until_done(call_all(cluster, call, {0, 1, 2}), milliseconds(200)));
  cluster.network.stall(Rank(0), Rank(1), cluster.clock.now() + milliseconds(100));
  const auto answers = call_all(cluster, call, {0, 1});
  cluster.run_for(milliseconds(60));
  CHECK_FALSE(cluster.group(0).outlook().is_acked(Seq(2), Rank(2)));
  REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
  (void)call_all(cluster, call, {0, 1});
  cluster.run_for(milliseconds(200));
  CHECK(cluster.group(0).outlook().is_acked(Seq(2), Rank(2)));
}

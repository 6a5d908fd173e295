// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Tests of members that stand still while their connections live.

#include "engine/group.h"
#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using std::chrono::minutes;
using std::chrono::seconds;

namespace {

constexpr engine::HeartbeatOptions kHeartbeat{seconds(1), seconds(30)};
constexpr const char* kSentence = "rank 2 has sent nothing to group \"test\" for 31 s";

Bytes floats(size_t count) {
  return Bytes(count * sizeof(float));
}
bool has(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}
void check_silent(const AnswerPtr& a, const std::string& sentence = kSentence) {
  REQUIRE(a->times == 1);
  INFO(a->status.message());
  CHECK(a->status.code() == Code::kPeerLost);
  CHECK(a->status.culprit() == Rank(2));
  CHECK(has(a->status, sentence));
}

}  // namespace

TEST_CASE(
    "a member that stands still ends the strict calls that need it, on all members") {
  for (const size_t count : {1u, 1000u}) {  // one owner; an owner per rank
    Cluster cluster({.size = 4, .heartbeat = kHeartbeat});
    const Call call = allreduce_call(DType::kFloat32, count);
    cluster.run_for(minutes(10));  // no member is silent while there is nothing to do
    cluster.stop(2, minutes(2));
    std::vector<AnswerPtr> answers;
    for (const int32_t r : {0, 1, 3})
      answers.push_back(cluster.allreduce(r, call, floats(count), minutes(30)));
    cluster.run_for(seconds(29));
    for (const auto& a : answers) REQUIRE_FALSE(a->is_done());
    cluster.run_for(seconds(3));
    for (const auto& a : answers) {
      check_silent(a);
      CHECK(has(a->status, describe(call) + ", collective 1, cannot end"));
      CHECK(has(a->status, "it is stopped, its machine is down, or the link is cut"));
    }
    // While it is silent, calls that need it fail at once.
    for (const int32_t r : {0, 1, 3}) {
      const auto a = cluster.barrier(r, minutes(30));
      cluster.turn();
      check_silent(a, "rank 2 has sent nothing");
    }
    // It comes back, and finds its calls failed with this sentence.
    cluster.run_for(minutes(3));
    check_silent(cluster.allreduce(2, call, floats(count), minutes(30)));
    check_silent(cluster.barrier(2, minutes(30)), "rank 2 has sent nothing");
    answers.clear();
    for (int32_t r = 0; r < 4; ++r)
      answers.push_back(cluster.allreduce(r, call, floats(count)));
    REQUIRE(cluster.run_until_done(answers, seconds(1)));
    for (const auto& a : answers) CHECK(a->is_ok());
  }
}

TEST_CASE("a member whose caller is late is not silent") {
  Cluster cluster({.size = 4, .heartbeat = kHeartbeat});
  std::vector<AnswerPtr> answers;
  for (const int32_t r : {0, 1, 3}) answers.push_back(cluster.barrier(r, minutes(30)));
  cluster.run_for(minutes(10));
  for (const auto& a : answers) REQUIRE_FALSE(a->is_done());
  answers.push_back(cluster.barrier(2));
  REQUIRE(cluster.run_until_done(answers, seconds(1)));
  for (const auto& a : answers) CHECK(a->is_ok());
}

TEST_CASE("messages from and to a silent member end, and other messages do not") {
  Cluster cluster({.size = 3, .heartbeat = kHeartbeat});
  const auto asked = cluster.receive(0, 2, 0, 8, minutes(30));
  const auto offered = cluster.send(0, 2, 0, Bytes(1000), 0, minutes(30));
  const auto other = cluster.receive(0, 1, 0, 8, minutes(30));
  const auto anyone = cluster.receive(0, std::nullopt, 7, 8, minutes(30));
  cluster.stop(2, minutes(2));
  cluster.run_for(seconds(32));
  check_silent(asked);
  check_silent(offered);
  check_silent(cluster.receive(0, 2, 0, 8, minutes(30)), "rank 2 has sent nothing");
  check_silent(cluster.send(0, 2, 0, Bytes(8), 0, minutes(30)),
               "rank 2 has sent nothing");
  CHECK_FALSE(other->is_done());
  CHECK_FALSE(anyone->is_done());
  cluster.send(1, 0, 0, Bytes(8));
  cluster.run_for(seconds(1));
  CHECK(other->is_ok());
  // It comes back. The message that it waited for has been given up.
  cluster.run_for(minutes(2));
  const auto given_up = cluster.receive(2, 0, 0, 1000, minutes(30));
  cluster.turn();
  REQUIRE(given_up->is_done());
  CHECK(given_up->status.code() == Code::kPeerLost);
  CHECK(has(given_up->status, "rank 0 has given the message up, because it has heard"));
  // It is back and heard again, by receives from any source and from its rank.
  cluster.run_for(minutes(3));
  cluster.send(2, 0, 7, Bytes(8));
  cluster.run_for(seconds(1));
  CHECK(anyone->is_ok());
  const auto again = cluster.receive(0, 2, 3, 8, minutes(30));
  cluster.send(2, 0, 3, Bytes(8));
  cluster.run_for(seconds(1));
  CHECK(again->is_ok());
}

TEST_CASE(
    "a member that leaves because of a silent member says so, if the silence lasts") {
  for (const char* how : {"receive", "send", "later"}) {
    for (const bool is_back : {false, true}) {
      INFO(how << ' ' << is_back);
      Cluster cluster({.size = 3, .heartbeat = kHeartbeat});
      const auto waiting = cluster.receive(0, 1, 0, 8, minutes(30));
      AnswerPtr ended;
      if (how == std::string("receive"))
        ended = cluster.receive(1, 2, 0, 8, minutes(9));
      if (how == std::string("send"))
        ended = cluster.send(1, 2, 0, Bytes(1000), 0, minutes(9));
      cluster.stop(2, minutes(2));
      cluster.run_for(seconds(35));
      if (!ended) ended = cluster.receive(1, 2, 0, 8, minutes(9));
      check_silent(ended, "rank 2 has sent nothing");
      CHECK_FALSE(waiting->is_done());
      if (is_back) cluster.run_for(minutes(3));
      cluster.group(1).leave();
      cluster.turn();
      if (!is_back) check_silent(waiting, "rank 1 gave the group up: rank 2 has sent");
      if (is_back) CHECK(waiting->status.culprit() == Rank(1));
    }
  }
}

TEST_CASE("a receive that a silent member has begun to fill ends") {
  Cluster cluster({.size = 3, .heartbeat = kHeartbeat});
  cluster.network.set_rate(Rank(2), Rank(0), 1000);
  const auto half = cluster.receive(0, 2, 0, 2000, minutes(30));
  const auto sent = cluster.send(2, 0, 0, Bytes(2000), 0, minutes(30));
  cluster.run_for(seconds(1));
  cluster.stop(2, minutes(2));
  cluster.run_for(seconds(35));
  check_silent(half, "rank 2 has sent nothing");
  cluster.run_for(minutes(3));
  CHECK(half->memory_is_untouched());
  CHECK(sent->is_ok());
  // The rest of the old message is not taken for the next message.
  const auto next = cluster.receive(0, 2, 0, 8, minutes(30));
  cluster.send(2, 0, 0, Bytes(8, 5));
  cluster.run_for(seconds(2));
  CHECK(next->is_ok());
}

TEST_CASE(
    "a receive from any source waits for its time, and then names the silent member") {
  Cluster cluster({.size = 3, .heartbeat = kHeartbeat});
  const auto anyone = cluster.receive(1, std::nullopt, 7, 8, minutes(1));
  const auto nobody = cluster.receive(1, std::nullopt, 7, 8, seconds(20));
  const auto waiting = cluster.receive(0, 1, 0, 8, minutes(30));
  cluster.stop(2, minutes(5));
  cluster.run_for(seconds(25));
  // No member was silent yet.
  REQUIRE(nobody->is_done());
  CHECK(nobody->status.code() == Code::kTimedOut);
  CHECK(nobody->status.culprit() == kNoRank);
  CHECK(
      nobody->status.message() ==
      "recv from any rank, tag 7 on rank 1: Timed out before a message for it was read "
      "here");
  cluster.run_for(seconds(34));
  CHECK_FALSE(anyone->is_done());
  cluster.run_for(seconds(2));
  check_silent(anyone,
               "recv from any rank, tag 7 on rank 1: Timed out: rank 2 has sent "
               "nothing to group \"test\" for 60 s");
  // Its caller gives up and leaves. The error of a member that waits for it names the
  // silent member.
  CHECK_FALSE(waiting->is_done());
  cluster.group(1).leave();
  cluster.turn();
  check_silent(waiting, "rank 1 gave the group up: rank 2 has sent nothing");
}

TEST_CASE("a time-out names the silent member for which the missing member may wait") {
  Cluster cluster({.size = 4, .heartbeat = kHeartbeat});
  cluster.receive(0, std::nullopt, 7, 8, minutes(30));
  std::vector<AnswerPtr> answers;
  for (const int32_t r : {1, 3}) answers.push_back(cluster.barrier(r, minutes(1)));
  cluster.barrier(2, minutes(1));
  cluster.turn();
  cluster.stop(2, minutes(5));
  cluster.run_for(seconds(61));
  for (const auto& a : answers) {
    REQUIRE(a->is_done());
    INFO(a->status.message());
    CHECK(a->status.code() == Code::kTimedOut);
    CHECK(a->status.culprit() == Rank(2));
    CHECK(has(a->status,
              "still missing: rank 0 (its last call known here is number 0), rank 2 ("
              "its last call known here is number 0); "
              "rank 2 has sent nothing to group \"test\" for"));
  }
}

TEST_CASE("calls that may skip go on without a silent member, which rejoins") {
  Cluster cluster({.size = 4, .heartbeat = kHeartbeat});
  Call call = allreduce_call(DType::kFloat32, 1000);  // an owner per rank
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.min_contributors = 1;
  call.policy.ceiling = milliseconds(50);
  cluster.run_for(seconds(5));
  cluster.stop(2, minutes(2));
  std::vector<AnswerPtr> answers;
  for (const int32_t r : {0, 1, 3})
    answers.push_back(cluster.allreduce(r, call, floats(1000), minutes(30)));
  cluster.run_for(minutes(1));
  for (const auto& a : answers) CHECK(a->is_ok());  // its shard has another owner
  cluster.run_for(minutes(2));
  answers.push_back(cluster.allreduce(2, call, floats(1000), minutes(30)));
  cluster.run_for(seconds(1));
  for (const auto& a : answers) CHECK(a->is_ok());
}

TEST_CASE("a member that was stopped itself does not take the others for silent") {
  Cluster cluster({.size = 3, .heartbeat = kHeartbeat});
  cluster.run_for(seconds(5));
  const auto waiting = cluster.receive(2, 1, 0, 8, minutes(30));
  cluster.stop(2, minutes(10));
  cluster.run_for(minutes(11));
  CHECK_FALSE(waiting->is_done());
  cluster.send(1, 2, 0, Bytes(8));
  cluster.run_for(seconds(1));
  CHECK(waiting->is_ok());
}

TEST_CASE("a broken connection is a loss at once, also of a silent member") {
  Cluster cluster({.size = 3, .heartbeat = kHeartbeat});
  cluster.stop(2, minutes(5));
  cluster.run_for(seconds(40));
  cluster.kill(2);
  cluster.turn();
  const auto a = cluster.barrier(0);
  cluster.turn();
  REQUIRE(a->is_done());
  CHECK(has(a->status, "rank 2 is lost to group \"test\""));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/group.h"

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

Bytes floats(size_t count) {
  return Bytes(count * sizeof(float));
}
bool has(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}
void check_failed(const AnswerPtr& a, Code code,
                  const std::vector<std::string>& parts) {
  REQUIRE(a->times == 1);
  INFO(a->status.message());
  CHECK(a->status.code() == code);
  CHECK(a->outcome.kind == collectives::OutcomeKind::kAborted);
  for (const auto& part : parts) CHECK(has(a->status, part));
}
// Checks that ended calls leave nothing behind.
void check_idle(Cluster& cluster) {
  cluster.run_idle();
  for (int32_t r = 0; r < cluster.size(); ++r)
    CHECK_FALSE(cluster.group(r).next_look().has_value());
}

}  // namespace

TEST_CASE("members in different calls all get an error with both calls") {
  Call gather = allreduce_call(DType::kFloat32, 8);
  gather.kind = CallKind::kAllgather;
  Call longer = allreduce_call(DType::kFloat32, 9);
  Call skip = allreduce_call(DType::kFloat32, 8);
  skip.policy.kind = straggler::Kind::kSkip;
  for (const Call& other : {gather, longer, skip}) {
    for (int32_t odd = 0; odd < 3; ++odd) {
      Cluster cluster({.size = 3});
      cluster.set_all_delays(milliseconds(1));
      const Call call = allreduce_call(DType::kFloat32, 8);
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < 3; ++r) {
        if (r == odd && other.kind == CallKind::kAllgather)
          answers.push_back(cluster.allgather(r, other, floats(8)));
        else if (r == odd)
          answers.push_back(cluster.allreduce(r, other, floats(other.count)));
        else
          answers.push_back(cluster.allreduce(r, call, floats(8)));
      }
      REQUIRE(cluster.run_until_done(answers, milliseconds(20)));
      for (const auto& a : answers)
        check_failed(
            a, Code::kInvalidArgument,
            {"calls " + describe(call), "calls " + describe(other),
             concat("rank ", odd, " calls"), "collective 1 of group \"test\""});
      // The next call works.
      answers.clear();
      for (int32_t r = 0; r < 3; ++r) answers.push_back(cluster.barrier(r));
      REQUIRE(cluster.run_until_done(answers, milliseconds(20)));
      for (const auto& a : answers) CHECK(a->is_ok());
      check_idle(cluster);
    }
  }
}

TEST_CASE("a mismatch that is seen before the own call is reported at the call") {
  Cluster cluster({.size = 2});
  cluster.allreduce(1, allreduce_call(DType::kFloat32, 8), floats(8));
  cluster.run_for(milliseconds(1));
  const auto late = cluster.barrier(0);  // rank 0 is the owner
  check_failed(late, Code::kInvalidArgument,
               {"all_reduce(sum, float32[8])", "barrier()"});
}

TEST_CASE("a time-out names the missing member and its last call") {
  for (const bool is_partial : {false, true}) {
    Cluster cluster({.size = 3});
    Call call = allreduce_call(DType::kFloat32, 100);
    if (is_partial) {
      call.policy.kind = straggler::Kind::kSkip;
      call.policy.min_contributors = 3;
    }
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 3; ++r) answers.push_back(cluster.barrier(r));
    REQUIRE(cluster.run_until_done(answers, milliseconds(1)));
    answers.clear();
    for (int32_t r = 0; r < 2; ++r)
      answers.push_back(cluster.allreduce(r, call, floats(100), milliseconds(500 + r)));
    cluster.run_for(milliseconds(499));
    for (const auto& a : answers) CHECK_FALSE(a->is_done());
    cluster.run_for(milliseconds(2));
    for (const auto& a : answers) {
      check_failed(
          a, Code::kTimedOut,
          {"collective 2 of group \"test\"", "Timed out after 500 ms on rank 0",
           "rank 2 (its last call known here is number "});
      CHECK(a->status.culprit() == Rank(2));
    }
    // The late member gets the error when it calls.
    const auto late = cluster.allreduce(2, call, floats(100));
    check_failed(late, Code::kTimedOut, {"on rank 0"});
    check_idle(cluster);
  }
}

TEST_CASE(
    "a member that has not called is the cause of a time-out, whichever rank sees it "
    "first") {
  Call skip = allreduce_call(DType::kFloat32, 8);
  skip.policy.kind = straggler::Kind::kSkip;
  skip.policy.min_contributors = 4;
  Call barrier, reduce = allreduce_call(DType::kFloat32, 8);
  barrier.kind = CallKind::kBarrier;
  Call monitored = barrier;
  monitored.kind = CallKind::kMonitoredBarrier;
  reduce.kind = CallKind::kReduce;
  reduce.root = Rank(0);
  Call gather = allreduce_call(DType::kFloat32, 8), large = gather, bcast = gather;
  gather.kind = CallKind::kAllgather;
  large.count = 400;
  bcast.kind = CallKind::kBroadcast;
  bcast.root = Rank(2);
  const auto timeout = milliseconds(300);
  for (const Call& call :
       {allreduce_call(DType::kFloat32, 8), allreduce_call(DType::kFloat32, 400), skip,
        barrier, monitored, reduce, gather, large, bcast}) {
    // Rank `first` times out first. The last other rank calls after the halfway
    // questions.
    for (const int32_t first : {0, 1, 3}) {
      Cluster cluster({.size = 4});
      cluster.set_all_delays(milliseconds(1));
      std::vector<AnswerPtr> answers;
      for (const int32_t r : {first, (first + 1) % 4, (first + 2) % 4, first + 3}) {
        if (r % 4 == 2) continue;
        if (answers.size() == 2) cluster.run_for(milliseconds(200));
        const Bytes data = floats(call.count);
        answers.push_back(call.kind == CallKind::kAllgather
                              ? cluster.allgather(r % 4, call, data, timeout)
                          : call.kind == CallKind::kBroadcast
                              ? cluster.broadcast(r % 4, call, data, timeout)
                              : cluster.allreduce(r % 4, call, data, timeout));
        cluster.run_for(milliseconds(1));
      }
      cluster.run_for(milliseconds(400));
      answers.push_back(cluster.allreduce(2, barrier, {}));
      for (size_t i = 0; i < answers.size(); ++i) {
        if (answers[i]->is_ok()) {  // it has given its data and needs nothing
          CHECK(call.kind == CallKind::kReduce);
          continue;
        }
        check_failed(answers[i], Code::kTimedOut,
                     {concat("on rank ", call.kind == CallKind::kReduce ? 0 : first),
                      "still missing: rank 2 (its last call known here is number 0)"});
        CHECK(answers[i]->status.culprit() == Rank(2));
      }
    }
  }
}

TEST_CASE("a short time-out is long enough to skip a late member first") {
  Call call = allreduce_call(DType::kFloat32, 100);
  call.policy.kind = straggler::Kind::kSkip;
  Cluster cluster({.size = 4});
  for (int i = 0; i < 2; ++i) {
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 4; ++r) {
      if (i == 0 || r != 3)
        answers.push_back(cluster.allreduce(r, call, floats(100), milliseconds(3000)));
    }
    REQUIRE(cluster.run_until_done(answers, milliseconds(i == 0 ? 10 : 1600)));
    CHECK(all_ok(answers));
  }
}

TEST_CASE(
    "a barrier ends after the earlier calls, and later calls do not wait for it") {
  Cluster cluster({.size = 2});
  cluster.set_all_rates(1'000'000);
  const Call large = allreduce_call(DType::kFloat32, 10'000);
  const Call small = allreduce_call(DType::kFloat32, 10);
  for (int32_t r = 0; r < 2; ++r) cluster.barrier(r);
  std::vector<AnswerPtr> first, barriers, later;
  for (int32_t r = 0; r < 2; ++r) {
    first.push_back(cluster.allreduce(r, large, floats(10'000)));
    for (int i = 0; i < 3; ++i) barriers.push_back(cluster.barrier(r));
    later.push_back(
        cluster.allreduce(r, small, floats(10), milliseconds(10'000), true, 1));
  }
  REQUIRE(cluster.run_until_done(barriers, milliseconds(1000)));
  for (size_t r = 0; r < 2; ++r) {
    REQUIRE(first[r]->is_ok());
    REQUIRE(later[r]->is_ok());
    CHECK(later[r]->at < first[r]->at);
    for (size_t i = 3 * r; i < 3 * r + 3; ++i) {
      CHECK(barriers[i]->is_ok());
      CHECK(barriers[i]->at >= first[r]->at);
    }
  }
  check_idle(cluster);
}

TEST_CASE("a barrier behind a call that does not end has an end of its own") {
  Cluster cluster({.size = 2});
  const Call call = allreduce_call(DType::kFloat32, 8);
  const auto stuck = cluster.allreduce(0, call, floats(8), milliseconds(1000));
  const auto short_one = cluster.barrier(0, milliseconds(100));
  const auto long_one = cluster.barrier(0, milliseconds(5000));
  cluster.run_for(milliseconds(101));
  check_failed(short_one, Code::kTimedOut,
               {"barrier(), collective 2", "Timed out after 100 ms"});
  CHECK_FALSE(stuck->is_done());
  CHECK_FALSE(long_one->is_done());
  SECTION("with its group") {
    cluster.group(0).abort({Code::kAborted, "enough"});
    check_failed(long_one, Code::kAborted, {"enough"});
  }
  SECTION("with a member that is lost") {
    cluster.kill(1);
    cluster.turn();
    check_failed(long_one, Code::kPeerLost, {"rank 1 is lost"});
  }
  SECTION("after the call before it fails") {
    cluster.run_for(milliseconds(900));
    check_failed(stuck, Code::kTimedOut, {});
    CHECK_FALSE(long_one->is_done());
    cluster.run_for(milliseconds(4000));
    check_failed(long_one, Code::kTimedOut, {"barrier(), collective 3"});
  }
}

TEST_CASE("a failed call sends no more of its caller's memory") {
  for (const bool is_partial : {false, true}) {
    Cluster cluster({.size = 3});
    cluster.network.set_rate(Rank(0), Rank(1), 10'000);
    Call call = allreduce_call(DType::kFloat32, 30'000);
    if (is_partial) {
      call.policy.kind = straggler::Kind::kSkip;
      call.policy.min_contributors = 3;
      cluster.set_all_rates(10'000);  // no other owner is faster
    }
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 3; ++r)
      answers.push_back(
          cluster.allreduce(r, call, floats(call.count), milliseconds(500)));
    cluster.run_for(milliseconds(700));  // a chunk takes 32 ms
    for (const auto& a : answers) {
      check_failed(a, Code::kTimedOut, {});
      CHECK(a->memory_is_free);
    }
    check_idle(cluster);
  }
}

TEST_CASE("a lost member ends the calls that need it on all members, for any owners") {
  for (const size_t count : {1u, 1000u}) {  // one owner; an owner per rank
    for (int32_t lost = 0; lost < 4; ++lost) {
      for (int32_t not_called = 0; not_called < 4; ++not_called) {
        if (not_called == lost) continue;
        Cluster cluster({.size = 4});
        const Call call = allreduce_call(DType::kFloat32, count);
        std::vector<AnswerPtr> answers;
        for (int32_t r = 0; r < 4; ++r)
          if (r != lost && r != not_called)
            answers.push_back(cluster.allreduce(r, call, floats(count)));
        cluster.run_for(milliseconds(1));
        cluster.kill(lost);
        cluster.run_for(milliseconds(1));
        answers.push_back(cluster.allreduce(not_called, call, floats(count)));
        cluster.run_for(milliseconds(1));
        INFO("lost " << lost << ", not called " << not_called);
        for (const auto& a : answers) {
          check_failed(
              a, Code::kPeerLost,
              {concat("rank ", lost, " is lost to group \"test\""), describe(call)});
          CHECK(a->status.culprit() == Rank(lost));
        }
        check_idle(cluster);
      }
    }
  }
}

TEST_CASE("a dead member ends calls that do not need it any more, and is named") {
  Cluster cluster({.size = 4});
  Call call = allreduce_call(DType::kFloat32, 1);
  call.kind = CallKind::kBroadcast;
  call.root = Rank(0);
  std::vector<AnswerPtr> ahead;
  for (int32_t r = 1; r < 4; ++r) {
    if (r != 2) ahead.push_back(cluster.broadcast(r, call, floats(1)));
  }
  cluster.run_for(milliseconds(1));
  cluster.kill(2);  // the root has not called and will not
  cluster.run_for(milliseconds(1));
  const std::string why = "rank 2 is lost to group \"test\"";
  for (const auto& a : ahead) {
    check_failed(a, Code::kPeerLost, {why, describe(call)});
    CHECK(a->status.culprit() == Rank(2));
  }
  // Later calls end, too: calls that only send, and calls that wait for another member.
  Call reduce = allreduce_call(DType::kFloat32, 1);
  reduce.kind = CallKind::kReduce;
  reduce.root = Rank(2);
  check_failed(cluster.allreduce(1, reduce, floats(1)), Code::kPeerLost, {why});
  check_failed(cluster.broadcast(3, call, floats(1)), Code::kPeerLost, {why});
  cluster.run_for(milliseconds(1));
  check_idle(cluster);
}

TEST_CASE("a member that leaves because of a death names the dead member") {
  Cluster cluster({.size = 3});
  const auto call = cluster.barrier(0);
  const auto message = cluster.receive(0, 1, 0, 4);
  cluster.run_for(milliseconds(1));
  cluster.network.cut(Rank(1), Rank(2));
  cluster.run_for(milliseconds(1));
  CHECK_FALSE(call->is_done());  // rank 1 knows, rank 0 does not
  cluster.group(1).leave();
  cluster.run_for(milliseconds(1));
  for (const auto& answer : {call, message}) {
    REQUIRE(answer->is_done());
    CHECK(answer->status.code() == Code::kPeerLost);
    CHECK(answer->status.culprit() == Rank(2));
  }
  CHECK(has(call->status, "rank 1 gave the group up"));
}

TEST_CASE("a member that leaves in order does not end calls that have all their data") {
  Cluster cluster({.size = 3, .min_shard_bytes = 1 << 20});
  cluster.network.set_delay(Rank(0), Rank(2), milliseconds(50));
  const Call call = allreduce_call(DType::kFloat32, 10);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 3; ++r)  // rank 0 owns it; rank 2 gets the result late
    answers.push_back(cluster.allreduce(r, call, floats(10)));
  cluster.run_for(milliseconds(1));
  REQUIRE(answers[1]->is_ok());
  cluster.group(1).leave();
  cluster.run_for(milliseconds(1));
  CHECK(cluster.group(1).is_drained());
  cluster.group(1).close_links();
  cluster.run_for(milliseconds(1));
  CHECK_FALSE(answers[2]->is_done());
  cluster.run_for(milliseconds(60));
  CHECK(answers[0]->is_ok());
  CHECK(answers[2]->is_ok());
  // A call that needs rank 1 gets the reason.
  const auto next = cluster.barrier(0);
  cluster.run_for(milliseconds(60));
  check_failed(next, Code::kPeerLost,
               {"rank 1 has left group \"test\" (it called destroy_process_group, or "
                "its program ended: look at its log)"});
  check_failed(cluster.barrier(1), Code::kAborted, {"is shut down"});
}

TEST_CASE("an abort ends all calls on all members, now and later") {
  Cluster cluster({.size = 3});
  const auto a = cluster.barrier(0);
  const auto b = cluster.barrier(1);
  const auto message = cluster.receive(2, 0, 1, 4);
  cluster.run_for(milliseconds(1));
  cluster.group(2).abort({Code::kAborted, "the user said so", Rank(2)});
  cluster.run_for(milliseconds(1));
  for (const auto& answer : {a, b})
    check_failed(answer, Code::kAborted,
                 {"rank 2 gave the group up", "the user said so"});
  CHECK(message->status.code() == Code::kAborted);
  for (int32_t r = 0; r < 3; ++r)
    check_failed(cluster.barrier(r), Code::kAborted, {"the user said so"});
  CHECK(cluster.send(0, 1, 0, floats(1))->status.code() == Code::kAborted);
  CHECK(cluster.receive(0, 1, 0, 1)->status.code() == Code::kAborted);
  check_idle(cluster);
}

TEST_CASE(
    "a member that gives the group up after a call spares this call for the others") {
  Cluster cluster({.size = 3});
  cluster.network.set_delay(Rank(0), Rank(2), milliseconds(10));
  const Call call = allreduce_call(DType::kFloat32, 8);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 3; ++r)
    answers.push_back(cluster.allreduce(r, call, floats(8)));
  const auto later = cluster.barrier(2);
  cluster.run_for(milliseconds(1));
  REQUIRE(answers[1]->is_ok());
  REQUIRE_FALSE(answers[2]->is_done());
  cluster.group(1).abort({Code::kAborted, "enough"});
  cluster.run_for(milliseconds(1));
  check_failed(later, Code::kAborted, {"rank 1 gave the group up", "enough"});
  CHECK_FALSE(answers[2]->is_done());
  check_failed(cluster.barrier(2), Code::kAborted, {"enough"});
  SECTION("the call ends as it would have") {
    cluster.run_for(milliseconds(20));
    for (const auto& a : answers) CHECK(a->is_ok());
  }
  SECTION("the call also ends well if the member that gave up leaves") {
    cluster.group(1).leave();
    cluster.run_for(milliseconds(1));
    cluster.group(1).close_links();
    cluster.run_for(milliseconds(20));
    for (const auto& a : answers) CHECK(a->is_ok());
  }
  SECTION("the call fails if another member gives up") {
    cluster.group(2).abort({Code::kAborted, "enough of that"});
    check_failed(answers[2], Code::kAborted, {"enough of that"});
  }
  cluster.run_for(milliseconds(20));
  check_idle(cluster);
}

TEST_CASE("a spared call ends if another member has not called it") {
  Cluster cluster({.size = 3});
  Call call = allreduce_call(DType::kUint8, 4);
  call.kind = CallKind::kGather;
  call.root = Rank(0);
  const auto at_root = cluster.exchange(0, call, {}, {std::nullopt, 4, 4});
  const auto given = cluster.exchange(1, call, {Bytes(4)}, {});
  cluster.run_for(milliseconds(1));
  REQUIRE(given->is_ok());
  cluster.group(1).abort({Code::kAborted, "enough"});
  cluster.run_for(milliseconds(1));
  check_failed(at_root, Code::kAborted, {"rank 2 gave the group up", "enough"});
  check_failed(cluster.exchange(2, call, {Bytes(4)}, {}), Code::kAborted, {"enough"});
  check_idle(cluster);
}

TEST_CASE("closing a group answers the calls that are under way") {
  Cluster cluster({.size = 2});
  std::vector<AnswerPtr> answers = {cluster.barrier(0), cluster.receive(0, 1, 0, 4),
                                    cluster.send(0, 1, 0, Bytes(1000)),
                                    cluster.receive(0, std::nullopt, 0, 4)};
  cluster.run_for(milliseconds(1));
  cluster.group(0).leave();
  CHECK(answers[0]->is_done());
  cluster.group(0).close_links();
  for (const auto& a : answers) {
    REQUIRE(a->times == 1);
    CHECK(a->status.code() == Code::kAborted);
    CHECK(has(a->status, "group \"test\" is shut down"));
  }
}

TEST_CASE(
    "a call by the inner backend ends when all have called, and compares the calls") {
  for (const CallKind kind : {CallKind::kAllreduce, CallKind::kReduceScatter,
                              CallKind::kBroadcast, CallKind::kAlltoall}) {
    Cluster cluster({.size = 3});
    Call call = allreduce_call(DType::kFloat32, 1 << 20);
    call.kind = kind;
    if (has_root(kind)) call.root = Rank(1);
    call.is_inner = true;
    const std::vector<std::optional<Bytes>> out[] = {
        {{}, Bytes(), Bytes()}, {Bytes(), {}, Bytes()}, {Bytes(), Bytes(), {}}};
    const std::vector<std::optional<size_t>> in[] = {
        {{}, 0, 0}, {0, {}, 0}, {0, 0, {}}};
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 3; ++r) {
      cluster.run_for(milliseconds(5));
      for (const auto& a : answers) CHECK_FALSE(a->is_done());
      answers.push_back(cluster.exchange(r, call, out[r], in[r]));
    }
    REQUIRE(cluster.run_until_done(answers, milliseconds(5)));
    for (const auto& a : answers) CHECK(a->is_ok());

    answers = {cluster.exchange(0, call, out[0], in[0]),
               cluster.exchange(1, call, out[1], in[1])};
    Call staged = call;
    staged.is_inner = false;
    staged.kind = CallKind::kAllreduce;
    answers.push_back(cluster.allreduce(2, staged, floats(1 << 20)));
    REQUIRE(cluster.run_until_done(answers, milliseconds(20)));
    for (const auto& a : answers)
      check_failed(a, Code::kInvalidArgument,
                   {"calls " + describe(call), "calls " + describe(staged)});
    check_idle(cluster);
  }
}

TEST_CASE("a group of one needs no other member") {
  Cluster cluster({.size = 1});
  Call skip = allreduce_call(DType::kFloat32, 10);
  skip.policy.kind = straggler::Kind::kSkip;
  Call gather = allreduce_call(DType::kUint8, 3);
  gather.kind = CallKind::kAllgather;
  Call cast = gather;
  cast.kind = CallKind::kBroadcast;
  cast.root = Rank(0);
  const Bytes input = random_elements(DType::kFloat32, 10, 1);
  const auto strict = cluster.allreduce(0, allreduce_call(DType::kFloat32, 10), input);
  const auto partial = cluster.allreduce(0, skip, input, milliseconds(1), false);
  for (const auto& a :
       {strict, partial, cluster.barrier(0), cluster.allgather(0, gather, {1, 2, 3}),
        cluster.broadcast(0, cast, {1, 2, 3})})
    CHECK(a->is_ok());
  CHECK(strict->output == input);
  CHECK(partial->output == input);
  check_idle(cluster);
}

TEST_CASE("counters count operations, skips and failures") {
  Cluster cluster({.size = 3});
  Call skip = allreduce_call(DType::kFloat32, 10);
  skip.policy.kind = straggler::Kind::kSkip;
  skip.policy.ceiling = milliseconds(50);
  for (int32_t r = 0; r < 2; ++r) cluster.allreduce(r, skip, floats(10));
  cluster.run_for(milliseconds(100));
  cluster.allreduce(2, skip, floats(10));
  cluster.barrier(2, milliseconds(10));
  cluster.run_for(milliseconds(100));
  const auto& late = cluster.group(2).counters();
  CHECK(late.operations == 2);
  CHECK(late.partial_operations == 1);
  CHECK(late.skipped_own == 1);
  CHECK(late.failures == 1);
  CHECK(cluster.group(0).counters().skipped_own == 0);
}

// ---- a peer that breaks the protocol ----

namespace {

// Far end of a link of a real group. It takes all frames, and notes the loss of the
// link.
class Puppet final : public transport::LinkHandler {
 public:
  Result<std::byte*> on_frame_begin(Rank, const transport::FrameHeader& header,
                                    std::span<const std::byte>) override {
    buffer_.resize(header.payload_bytes + 1);
    return buffer_.data();
  }
  void on_frame(Rank, const transport::FrameHeader&) override {}
  void on_link_lost(Rank, const Status&) override { is_lost = true; }
  uint64_t called() const override { return 0; }
  int32_t acked() const override { return 0; }
  transport::WakePolicy wake_policy(Rank) const override {
    return transport::WakePolicy::kNow;
  }
  bool is_lost = false;

 private:
  std::vector<std::byte> buffer_;
};

struct Stage {
  ManualClock clock;
  transport::LoopbackNetwork network{&clock, 4096};
  engine::Group group{&clock, [] {
                        engine::GroupOptions o;
                        o.name = "test";
                        o.self = Rank(0);
                        o.size = 2;
                        return o;
                      }()};
  Puppet puppet;
  std::unique_ptr<transport::Link> link;

  Stage() {
    auto [ours, theirs] = network.connect(Rank(0), group.handler(), Rank(1), &puppet);
    group.attach(Rank(1), std::move(ours));
    link = std::move(theirs);
  }
  void send(transport::FrameKind kind, uint64_t seq,
            std::span<const std::byte> extension, size_t bytes = 0) {
    static const std::vector<std::byte> kPayload(300'000);
    transport::OutMessage m;
    m.header.kind = kind;
    m.header.seq = seq;
    m.header.total_bytes = bytes;
    m.data = kPayload.data();
    m.bytes = bytes;
    std::copy(extension.begin(), extension.end(), m.extension.begin());
    m.extension_bytes = static_cast<uint8_t>(extension.size());
    link->send(std::move(m));
    network.pump();
  }
};

}  // namespace

TEST_CASE("nonsense from a peer loses the link, but never the process") {
  using transport::FrameKind;
  const auto sane = [](ReduceOp op, DType dtype) {
    return encode(allreduce_call(dtype, 4, op));
  };
  std::vector<collectives::EncodedCall> calls;
  calls.emplace_back().size = 3;  // too short
  calls.push_back(sane(ReduceOp::kSum, DType::kFloat32));
  calls.back().bytes[0] = std::byte{99};                    // no such kind
  calls.push_back(sane(ReduceOp::kBand, DType::kFloat32));  // not defined
  Call bad_policy = allreduce_call(DType::kFloat32, 4);
  bad_policy.policy.kind = straggler::Kind::kSkip;
  bad_policy.policy.min_contributors = 77;
  calls.push_back(encode(bad_policy));
  for (const auto& call : calls) {
    Stage stage;
    stage.send(FrameKind::kContrib, 1, call.view(), 16);
    CHECK(stage.puppet.is_lost);
  }
  Stage stage;
  stage.send(FrameKind::kP2pData, 1, {}, 300'000);  // large, without a request
  CHECK(stage.puppet.is_lost);
  Stage far_ahead;
  far_ahead.send(FrameKind::kContrib, uint64_t{1} << 40,
                 sane(ReduceOp::kSum, DType::kFloat32).view(), 16);
  CHECK(far_ahead.puppet.is_lost);
}

TEST_CASE("frames that do not fit their call end it on all members") {
  using transport::FrameKind;
  const auto call = encode(allreduce_call(DType::kFloat32, 4));
  for (const auto kind : {FrameKind::kContrib, FrameKind::kResult, FrameKind::kData}) {
    Stage stage;
    stage.send(kind, 1, call.view(), 20);  // 16 would be right
    collectives::LocalCall local;
    Bytes memory(16);
    local.input = local.output = bytes_of(memory);
    Status status;
    local.on_done = [&](const Status& s, const collectives::Outcome&) { status = s; };
    stage.group.call(allreduce_call(DType::kFloat32, 4), std::move(local),
                     milliseconds(100));
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(has(status, "rank 1 sends 20 bytes where rank 0 expects"));
  }
}

TEST_CASE("a second contribution to a shard that is folded ends the call") {
  using transport::FrameKind;
  Stage stage;
  const Call call = allreduce_call(DType::kFloat32, 10'000);  // two shards
  const size_t own_shard = 5008 * sizeof(float);              // whole cache lines
  collectives::LocalCall local;
  Bytes memory(call.bytes());
  local.input = local.output = bytes_of(memory);
  Status status;
  bool is_done = false;
  local.on_done = [&](const Status& s, const collectives::Outcome&) {
    status = s;
    is_done = true;
  };
  stage.group.call(call, std::move(local), milliseconds(100));
  stage.send(FrameKind::kContrib, 1, encode(call).view(), own_shard);
  REQUIRE_FALSE(is_done);  // the other shard's result is missing
  stage.send(FrameKind::kContrib, 1, encode(call).view(), own_shard);
  REQUIRE(is_done);
  CHECK(status.code() == Code::kInvalidArgument);
}

TEST_CASE("a block that does not fit ends the group if its sender was done") {
  Cluster cluster({.size = 2});
  Call call;
  call.kind = CallKind::kAlltoall;
  const auto sender = cluster.exchange(0, call, {std::nullopt, Bytes(10)}, {});
  cluster.run_idle();
  REQUIRE(sender->is_ok());
  const auto receiver = cluster.exchange(1, call, {}, {20});
  cluster.run_idle();
  check_failed(receiver, Code::kInvalidArgument,
               {"rank 0 sends 10 bytes where rank 1 expects 20"});
  CHECK(has(cluster.group(0).failure(), "rank 0 sends 10 bytes where rank 1 expects"));
  CHECK(has(cluster.group(0).failure(), "group \"test\" has ended: make a new one"));
}

TEST_CASE("a call that had ended before its mismatch was found ends the group") {
  using transport::FrameKind;
  Stage stage;
  Call ours;
  ours.kind = CallKind::kBroadcast;
  ours.count = 4;
  ours.root = Rank(0);
  Bytes memory(4);
  collectives::LocalCall local;
  local.out_blocks.push_back({Rank(1), bytes_of(memory), 4});
  stage.group.call(ours, std::move(local), milliseconds(100));
  stage.network.pump();
  stage.send(FrameKind::kData, 1, encode(ours).view(), 4);
  CHECK(stage.group.failure().is_ok());  // the same call
  Call theirs = ours;
  theirs.root = Rank(1);
  stage.send(FrameKind::kData, 1, encode(theirs).view(), 4);
  CHECK(has(stage.group.failure(), "rank 0 calls broadcast(src 0, uint8[4])"));
  CHECK(has(stage.group.failure(), "rank 1 calls broadcast(src 1, uint8[4])"));
  CHECK(has(stage.group.failure(), "group \"test\" has ended: make a new one"));
}

// Rank 0 finds the mismatch, and owns the next call. Its results must not overtake its
// news.
TEST_CASE(
    "the news of a mismatch comes before results of later calls from the same rank") {
  Cluster cluster({.size = 3});
  for (const int32_t r : {1, 2})
    cluster.network.set_delay(Rank(0), Rank(r), transport::Lane::kControl,
                              milliseconds(20));
  const auto cast = [&](int32_t rank, int32_t root) {
    Call call;
    call.kind = CallKind::kBroadcast;
    call.count = 9;
    call.root = Rank(root);
    const auto answer = cluster.broadcast(rank, call, Bytes(9));
    cluster.run_for(milliseconds(1));
    return answer;
  };
  CHECK(cast(1, 1)->is_ok());
  CHECK(cast(2, 1)->is_ok());
  const std::vector<std::string> both = {"rank 1 calls broadcast(src 1, uint8[9])",
                                         "rank 0 calls broadcast(src 0, uint8[9])"};
  check_failed(cast(0, 0), Code::kInvalidArgument, both);
  std::vector<AnswerPtr> next;
  for (int32_t r = 0; r < 3; ++r)
    next.push_back(cluster.allreduce(r, allreduce_call(DType::kFloat32, 3), floats(3)));
  cluster.run_for(milliseconds(1));
  for (const auto& a : next) check_failed(a, Code::kInvalidArgument, both);
}

TEST_CASE("a call that one member refuses fails on all members with its sentence") {
  const Call call = allreduce_call(DType::kFloat32, 100);
  Call skip = call;
  skip.policy.kind = straggler::Kind::kSkip;
  skip.policy.min_contributors = 3;
  const Call empty = allreduce_call(DType::kFloat32, 0);
  for (const Call& calls : {call, skip, empty}) {
    for (const int num_before : {0, 1, 2}) {
      Cluster cluster({.size = 3});
      cluster.set_all_delays(milliseconds(1));
      const Status why(Code::kInvalidArgument, "rank 1 passes nonsense", Rank(1));
      std::vector<AnswerPtr> answers;
      const auto call_on = [&](int32_t rank) {
        answers.push_back(cluster.allreduce(rank, calls, floats(calls.count)));
      };
      if (num_before > 0) call_on(0);
      if (num_before > 1) call_on(2);
      cluster.run_for(milliseconds(5));
      cluster.group(1).refuse(why);
      cluster.run_for(milliseconds(5));
      if (num_before < 1) call_on(0);
      if (num_before < 2) call_on(2);
      REQUIRE(cluster.run_until_done(answers, milliseconds(5)));
      for (const auto& a : answers) {
        check_failed(a, Code::kInvalidArgument, {"rank 1 passes nonsense"});
        CHECK(a->status.culprit() == Rank(1));
      }
      answers.clear();
      for (int32_t r = 0; r < 3; ++r) answers.push_back(cluster.barrier(r));
      REQUIRE(cluster.run_until_done(answers, milliseconds(20)));
      for (const auto& a : answers) CHECK(a->is_ok());
      check_idle(cluster);
    }
  }
}

TEST_CASE("a call that all members refuse leaves nothing behind") {
  for (const int64_t apart : {0, 5}) {
    Cluster cluster({.size = 3});
    cluster.set_all_delays(milliseconds(1));
    for (int i = 0; i < 3; ++i) {
      for (int32_t r = 0; r < 3; ++r) {
        cluster.group(r).refuse(
            {Code::kInvalidArgument, concat("rank ", r, " refuses"), Rank(r)});
        cluster.run_for(milliseconds(apart));
      }
    }
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 3; ++r) answers.push_back(cluster.barrier(r));
    REQUIRE(cluster.run_until_done(answers, milliseconds(20)));
    for (const auto& a : answers) CHECK(a->is_ok());
    CHECK(answers[0]->outcome.seq == Seq(4));
    check_idle(cluster);
  }
}

TEST_CASE("a call that has ended elsewhere stays valid when a member refuses it") {
  Cluster cluster({.size = 3});
  Call call = allreduce_call(DType::kFloat32, 8);
  call.kind = CallKind::kBroadcast;
  call.root = Rank(0);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 2; ++r)
    answers.push_back(cluster.broadcast(r, call, floats(8)));
  REQUIRE(cluster.run_until_done(answers, milliseconds(20)));
  cluster.group(2).refuse({Code::kInvalidArgument, "rank 2 refuses", Rank(2)});
  cluster.run_for(milliseconds(5));
  for (int32_t r = 0; r < 3; ++r) answers.push_back(cluster.barrier(r));
  REQUIRE(cluster.run_until_done(answers, milliseconds(20)));
  for (const auto& a : answers) CHECK(a->is_ok());
  check_idle(cluster);
}

TEST_CASE("a group that has ended can also refuse a call") {
  Cluster cluster({.size = 2});
  cluster.group(0).abort(Status(Code::kAborted, "enough"));
  cluster.group(0).refuse({Code::kInvalidArgument, "rank 0 refuses", Rank(0)});
  cluster.run_for(milliseconds(5));
  check_failed(cluster.barrier(1), Code::kAborted, {"enough"});
  check_failed(cluster.barrier(0), Code::kAborted, {"enough"});
  check_idle(cluster);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of full sums in which one member is late again and again, owns nothing, and is
// in every result. Also tests of one mask for the whole bucket.
#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

constexpr uint64_t kRate = 1'000'000;  // bytes per second, for each pair and direction
constexpr size_t kCount = 12'000;      // floats: 48 ms on a link

Call exact_call(size_t count = kCount, ReduceOp op = ReduceOp::kSum) {
  Call call = allreduce_call(DType::kFloat32, count, op);
  call.policy.rebalance = true;
  return call;
}

Bytes input_of(const Call& call, int32_t rank) {
  return random_elements(call.dtype, call.count, static_cast<uint64_t>(rank) + 1);
}

// The strict result of all members.
Bytes sum_of(const Call& call, int32_t size) {
  std::vector<Bytes> inputs;
  std::vector<const void*> sources;
  for (int32_t r = 0; r < size; ++r) inputs.push_back(input_of(call, r));
  for (const Bytes& input : inputs) sources.push_back(input.data());
  Bytes out(call.bytes());
  kernels::find_reduce(call.op, call.dtype)(
      out.data(), sources.data(), sources.size(), call.count,
      call.op == ReduceOp::kAvg ? 1.0 / size : 1.0);
  return out;
}

struct Operation {
  std::vector<AnswerPtr> answers;
  Duration took{};
};

// All members call, `late` after `lag`.
Operation run_operation(Cluster& cluster, const Call& call, int32_t late,
                        Duration lag) {
  Operation done;
  const TimePoint begin = cluster.clock.now();
  for (int32_t r = 0; r < cluster.size(); ++r)
    if (r != late)
      done.answers.push_back(cluster.allreduce(r, call, input_of(call, r)));
  if (late >= 0) {
    cluster.run_for(lag);
    done.answers.push_back(cluster.allreduce(late, call, input_of(call, late)));
  }
  REQUIRE(cluster.run_until_done(done.answers, milliseconds(5000)));
  const Bytes expected = sum_of(call, cluster.size());
  for (const AnswerPtr& answer : done.answers) {
    INFO(answer->status.message());
    REQUIRE(answer->is_ok());
    CHECK(answer->output == expected);
    CHECK(answer->outcome.kind == collectives::OutcomeKind::kComplete);
    done.took = std::max(done.took, answer->at - begin);
  }
  cluster.run_for(milliseconds(5));
  return done;
}

bool owns(Cluster& cluster, int32_t rank) {
  bool is_owner = false;
  for (int32_t r = 0; r < cluster.size(); ++r)
    is_owner |= cluster.group(r).view().is_owner(Rank(rank));
  return is_owner;
}

}  // namespace

TEST_CASE("a healthy group with full sums stays in its first view") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(kRate);
  for (int i = 0; i < 10; ++i) run_operation(cluster, exact_call(), -1, {});
  for (int32_t r = 0; r < 4; ++r) CHECK(cluster.group(r).view().number == 1);
}

TEST_CASE(
    "a member that is late again and again owns nothing, and is in every result") {
  for (const int32_t late : {0, 3}) {
    Cluster cluster({.size = 4});
    cluster.set_all_delays(milliseconds(1));
    cluster.set_all_rates(kRate);
    for (int i = 0; i < 5; ++i)
      run_operation(cluster, exact_call(), late, milliseconds(300));
    CHECK_FALSE(owns(cluster, late));
    for (int32_t r = 0; r < 4; ++r) {
      CHECK(cluster.group(r).view().has(Rank(late)));
      CHECK(cluster.group(r).view().number == 2);
    }
    const auto done = run_operation(cluster, exact_call(1001, ReduceOp::kMax), late,
                                    milliseconds(300));
    for (const auto& shard : done.answers[0]->outcome.shards) {
      CHECK(shard.owner != Rank(late));
      CHECK(shard.contributors.size() == 4);
    }
    // After a long time without lateness it owns shards again.
    for (int i = 0; i < 14; ++i) run_operation(cluster, exact_call(), -1, {});
    CHECK_FALSE(owns(cluster, late));
    for (int i = 0; i < 6; ++i) run_operation(cluster, exact_call(), -1, {});
    CHECK(owns(cluster, late));
    // The next time this takes twice as long.
    for (int i = 0; i < 5; ++i)
      run_operation(cluster, exact_call(), late, milliseconds(300));
    CHECK_FALSE(owns(cluster, late));
    for (int i = 0; i < 30; ++i) run_operation(cluster, exact_call(), -1, {});
    CHECK_FALSE(owns(cluster, late));
    for (int i = 0; i < 6; ++i) run_operation(cluster, exact_call(), -1, {});
    CHECK(owns(cluster, late));
  }
}

TEST_CASE("a member that is late now and then keeps its shards") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(kRate);
  for (int i = 0; i < 20; ++i)
    run_operation(cluster, exact_call(), i % 3 == 0 ? 2 : -1, milliseconds(300));
  CHECK(cluster.group(0).view().number == 1);
}

TEST_CASE("pieces of a full sum are sent before the last contribution is complete") {
  Cluster cluster({.size = 3, .chunk_bytes = 400});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(kRate);
  for (int i = 0; i < 6; ++i)
    run_operation(cluster, exact_call(), 2, milliseconds(100));
  REQUIRE_FALSE(owns(cluster, 2));
  // A link carries a shard in 24 ms. It would take twice that if the result were sent
  // after the close.
  const auto done = run_operation(cluster, exact_call(), 2, milliseconds(100));
  CHECK(done.took >= milliseconds(100 + 24 + 2));
  CHECK(done.took < milliseconds(100 + 24 + 2 + 8));
}

TEST_CASE("a question for calls in the middle of a contribution breaks nothing") {
  Cluster cluster({.size = 3});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(kRate / 20);  // longer than a member waits before it asks
  const auto done = run_operation(cluster, exact_call(), -1, {});
  CHECK(done.took > milliseconds(600));
}

TEST_CASE("a full sum never ends without a dead member") {
  for (const int32_t dead : {0, 3}) {
    Cluster cluster({.size = 4});
    cluster.set_all_delays(milliseconds(1));
    cluster.set_all_rates(kRate);
    run_operation(cluster, exact_call(), -1, {});
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 4; ++r)
      if (r != dead)
        answers.push_back(
            cluster.allreduce(r, exact_call(), input_of(exact_call(), r)));
    cluster.run_for(milliseconds(3));
    cluster.kill(dead);
    REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
    for (const AnswerPtr& answer : answers) {
      CHECK(answer->status.code() == Code::kPeerLost);
      CHECK(answer->status.message().find(concat("rank ", dead)) != std::string::npos);
      CHECK(answer->status.message().find("needs all of them") != std::string::npos);
    }
    // A later one fails, too, in the view without the dead member.
    cluster.run_for(milliseconds(1000));
    const int32_t left = dead == 0 ? 1 : 0;
    CHECK_FALSE(cluster.group(left).view().has(Rank(dead)));
    const auto later =
        cluster.allreduce(left, exact_call(), input_of(exact_call(), left));
    REQUIRE(cluster.run_until_done({later}, milliseconds(1000)));
    CHECK(later->status.code() == Code::kPeerLost);
    CHECK(later->status.message().find(concat("rank ", dead)) != std::string::npos);
  }
}

TEST_CASE("all members get an error if they disagree about the policy") {
  const Call exact = exact_call(),
             strict = allreduce_call(DType::kFloat32, kCount, ReduceOp::kSum);
  Call shard = strict, bucket = strict;
  shard.policy.kind = bucket.policy.kind = straggler::Kind::kSkip;
  bucket.policy.masks = straggler::Masks::kBucket;
  for (const auto& [one, other] :
       {std::pair(exact, strict), std::pair(exact, shard), std::pair(shard, bucket)}) {
    Cluster cluster({.size = 3});
    cluster.set_all_delays(milliseconds(1));
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 3; ++r)
      answers.push_back(
          cluster.allreduce(r, r == 1 ? other : one, input_of(strict, r)));
    REQUIRE(cluster.run_until_done(answers, milliseconds(2000)));
    for (const AnswerPtr& answer : answers) {
      CHECK(answer->status.code() == Code::kInvalidArgument);
      CHECK(answer->status.message().find(describe(one)) != std::string::npos);
      CHECK(answer->status.message().find(describe(other)) != std::string::npos);
    }
  }
}

TEST_CASE(
    "with one mask for the bucket owners take turns, and a late member is skipped in "
    "all") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  Call call = allreduce_call(DType::kFloat32, kCount, ReduceOp::kSum);
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.masks = straggler::Masks::kBucket;
  call.policy.floor = call.policy.ceiling = milliseconds(5);
  std::vector<int32_t> owners(4);
  for (uint64_t seq = 1; seq <= 18; ++seq) {
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 3; ++r)
      answers.push_back(cluster.allreduce(r, call, input_of(call, r)));
    REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
    answers.push_back(cluster.allreduce(3, call, input_of(call, 3)));
    REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
    for (const AnswerPtr& answer : answers) {
      REQUIRE(answer->is_ok());
      CHECK(answer->output == answers[0]->output);
      REQUIRE(answer->outcome.shards.size() == 1);
      CHECK(answer->outcome.shards[0].owner == answers[0]->outcome.shards[0].owner);
      CHECK(answer->outcome.skipped == std::vector<Rank>{Rank(3)});
    }
    ++owners[static_cast<size_t>(answers[0]->outcome.shards[0].owner.value)];
    // A late caller still serves as an owner, until it is late again and again.
    if (seq == 4) CHECK(owners == std::vector<int32_t>{1, 1, 1, 1});
    if (seq == 6) owners = {0, 0, 0, 0};
  }
  CHECK(owners == std::vector<int32_t>{4, 4, 4, 0});
}

TEST_CASE("the turn of a dead owner falls to others") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  Call call = allreduce_call(DType::kFloat32, 100, ReduceOp::kSum);
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.masks = straggler::Masks::kBucket;
  call.policy.floor = call.policy.ceiling = milliseconds(5);
  for (int i = 0; i < 12; ++i) {
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 4; ++r)
      if (r != 2 || i < 2)
        answers.push_back(cluster.allreduce(r, call, input_of(call, r)));
    if (i == 2) cluster.kill(2);  // its turn is near
    REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
    for (const AnswerPtr& answer : answers) {
      INFO(i << ": " << answer->status.message());
      REQUIRE(answer->is_ok());
      CHECK(answer->output == answers[0]->output);
      if (i > 4) CHECK(answer->outcome.shards[0].owner != Rank(2));
    }
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Tests of senders that run ahead of a late member.

#include <random>

#include "engine/group.h"
#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using std::chrono::seconds;

namespace {

constexpr size_t kKiB = 1024;

Call broadcast_call(size_t count, int32_t root = 0) {
  Call call = allreduce_call(DType::kUint8, count);
  call.kind = CallKind::kBroadcast;
  call.root = Rank(root);
  return call;
}
Call skip_call(size_t count) {
  Call call = allreduce_call(DType::kFloat32, count);
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.min_contributors = 1;
  call.policy.ceiling = milliseconds(20);
  return call;
}
size_t num_done(const std::vector<AnswerPtr>& answers) {
  return static_cast<size_t>(std::count_if(answers.begin(), answers.end(),
                                           [](const auto& a) { return a->is_done(); }));
}
void check_ok(Cluster& cluster, const std::vector<AnswerPtr>& answers) {
  REQUIRE(cluster.run_until_done(answers, seconds(30)));
  for (const auto& a : answers) {
    INFO(a->status.message());
    REQUIRE(a->is_ok());
  }
}

// Rank 1 makes as many calls as rank 0, which has run ahead and waits.
void check_behind(const ClusterOptions& options, const Call& call, int num_calls) {
  Cluster cluster(options);
  const Bytes input = random_elements(call.dtype, call.count, 1);
  std::vector<AnswerPtr> answers;
  for (const int32_t rank : {0, 1}) {
    for (int i = 0; i < num_calls; ++i)
      answers.push_back(cluster.allreduce(rank, call, input));
    if (rank == 0) cluster.run_for(seconds(1));
  }
  check_ok(cluster, answers);
}

}  // namespace

TEST_CASE(
    "a sender that runs ahead of a late member waits, and the other members do not") {
  Cluster cluster({.size = 3, .window_bytes = 16 * kKiB});
  std::vector<AnswerPtr> roots, prompt, late;
  for (unsigned char i = 0; i < 100; ++i) {
    roots.push_back(cluster.broadcast(0, broadcast_call(64), Bytes(64, i)));
    prompt.push_back(cluster.broadcast(1, broadcast_call(64), Bytes(64)));
  }
  check_ok(cluster, prompt);
  CHECK(num_done(roots) == 16 * kKiB / (kKiB + 64));  // messages to rank 2
  // It is drained when no message is held back any more.
  CHECK_FALSE(cluster.group(0).is_drained());
  for (int i = 0; i < 100; ++i)
    late.push_back(cluster.broadcast(2, broadcast_call(64), Bytes(64)));
  // It reports its calls without being asked by a probe.
  REQUIRE(cluster.run_until_done(late, milliseconds(100)));
  check_ok(cluster, late);
  check_ok(cluster, roots);
  for (unsigned char i = 0; i < 100; ++i) CHECK(late[i]->output == Bytes(64, i));
  cluster.run_idle();
  CHECK(cluster.group(0).is_drained());
}

TEST_CASE("operations larger than the window run one after the other") {
  check_behind({.size = 2, .window_bytes = 2 * kKiB},
               allreduce_call(DType::kFloat32, 10 * kKiB), 5);
}

TEST_CASE("a late member that serves takes part in calls beyond the window") {
  Cluster cluster({.size = 3, .window_bytes = 2 * kKiB});
  const Call call = skip_call(300);  // a shard per rank
  std::vector<AnswerPtr> all;
  for (int op = 0; op < 50; ++op) {
    std::vector<AnswerPtr> now;
    for (int32_t r = 0; r < 2; ++r)
      now.push_back(cluster.allreduce(r, call, Bytes(call.bytes())));
    check_ok(cluster, now);
    CHECK(now[0]->outcome.skipped == std::vector<Rank>{Rank(2)});
  }
  for (int op = 0; op < 50; ++op)
    all.push_back(cluster.allreduce(2, call, Bytes(call.bytes())));
  check_ok(cluster, all);
}

TEST_CASE(
    "contributions with a short send window also keep to the window of all calls") {
  // 4 KiB to the other rank in each call.
  check_behind({.size = 2, .lead_bytes = 1, .window_bytes = 16 * kKiB},
               allreduce_call(DType::kFloat32, 2 * kKiB), 30);
}

TEST_CASE("a leave releases the messages that were held back") {
  Cluster cluster({.size = 2, .window_bytes = 4 * kKiB});
  std::vector<AnswerPtr> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(cluster.barrier(0));
  for (int i = 0; i < 20; ++i)
    answers.push_back(cluster.broadcast(0, broadcast_call(64), Bytes(64)));
  cluster.run_for(milliseconds(1));
  CHECK_FALSE(cluster.group(0).is_drained());
  cluster.group(0).leave();
  cluster.run_for(milliseconds(1));
  CHECK(cluster.group(0).is_drained());
  for (const auto& a : answers) CHECK(a->times == 1);
}

TEST_CASE("a failed call keeps no data for a member that calls it later") {
  Cluster cluster({.size = 2, .window_bytes = 60 * kKiB});
  const Call call = allreduce_call(DType::kFloat32, 10 * kKiB);
  const auto first = cluster.allreduce(0, call, Bytes(call.bytes()), milliseconds(100));
  const auto second = cluster.allreduce(0, call, Bytes(call.bytes()));
  const auto third = cluster.allreduce(0, call, Bytes(call.bytes()));
  cluster.run_for(milliseconds(50));
  // Half of each bucket goes to rank 1, and three halves are more than the window.
  CHECK_FALSE(cluster.group(0).is_drained());
  cluster.run_for(milliseconds(60));
  CHECK(first->status.code() == Code::kTimedOut);
  CHECK(cluster.group(0).is_drained());
  std::vector<AnswerPtr> late;
  for (int i = 0; i < 3; ++i)
    late.push_back(cluster.allreduce(1, call, Bytes(call.bytes())));
  check_ok(cluster, {second, third, late[1], late[2]});
  CHECK(late[0]->status.code() == Code::kTimedOut);
}

TEST_CASE("a member that does not learn of thousands of failures is lost") {
  Cluster cluster({.size = 3, .heartbeat = {seconds(1), seconds(30)}});
  cluster.stop(2, std::chrono::hours(1));
  cluster.run_for(seconds(40));
  AnswerPtr last;
  int calls = 0;
  for (; calls < 20'000; ++calls) {
    last = cluster.barrier(0);
    cluster.barrier(1);
    cluster.turn();
    REQUIRE(last->is_done());
    if (last->status.message().find("is lost") != std::string::npos) break;
  }
  CHECK(calls > 16'000);
  CHECK(calls < 17'000);
  CHECK(last->status.culprit() == Rank(2));
  CHECK(last->status.message().find(
            "rank 2 is lost to group \"test\": it has not called "
            "for more than 16384 failed calls") != std::string::npos);
}

TEST_CASE("every call ends, for any window and any lateness") {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return random() % n; };
    const int32_t size = static_cast<int32_t>(2 + below(3));
    Cluster cluster({.size = size,
                     .lead_bytes = seed % 2 == 0 ? size_t{1} : size_t{1} << 20,
                     .window_bytes = 2 * kKiB + below(8 * kKiB)});
    cluster.set_all_delays(std::chrono::microseconds(below(3000)));
    if (below(2) == 0) cluster.set_all_rates(1'000'000 + below(10'000'000));
    std::vector<Call> calls;
    for (int i = 0; i < 60; ++i) {
      const size_t count = 1 + below(below(5) == 0 ? 3000 : 100);
      switch (below(4)) {
        case 0:
          calls.push_back(broadcast_call(
              count, static_cast<int32_t>(below(static_cast<uint64_t>(size)))));
          break;
        case 1:
          calls.push_back(skip_call(count));
          break;
        case 2:
          calls.push_back(allreduce_call(DType::kFloat32, count));
          break;
        default:
          calls.emplace_back();
          calls.back().kind = CallKind::kBarrier;
      }
    }
    std::vector<size_t> next(static_cast<size_t>(size));
    std::vector<AnswerPtr> answers;
    while (answers.size() < calls.size() * static_cast<size_t>(size)) {
      const auto r = static_cast<int32_t>(below(static_cast<uint64_t>(size)));
      // Some calls in a row, and then perhaps a pause.
      for (uint64_t burst = below(30); burst > 0; --burst) {
        size_t& at = next[static_cast<size_t>(r)];
        if (at == calls.size()) break;
        const Call& call = calls[at++];
        Bytes data(call.bytes(), static_cast<unsigned char>(at));
        answers.push_back(call.kind == CallKind::kBroadcast
                              ? cluster.broadcast(r, call, data, seconds(60))
                          : call.kind == CallKind::kBarrier
                              ? cluster.barrier(r, seconds(60))
                              : cluster.allreduce(r, call, data, seconds(60)));
      }
      if (below(2) == 0) cluster.run_for(std::chrono::microseconds(below(20'000)));
    }
    INFO("seed " << seed);
    check_ok(cluster, answers);
    cluster.run_idle();
    for (int32_t r = 0; r < size; ++r) CHECK(cluster.group(r).is_drained());
  }
}

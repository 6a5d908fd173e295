// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/block_exchange.h"

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

Call call_of(CallKind kind, size_t count, Rank root = kNoRank) {
  Call call;
  call.kind = kind;
  call.dtype = DType::kUint8;
  call.count = count;
  call.root = root;
  return call;
}

Bytes data_of(int32_t rank, size_t bytes) {
  return random_elements(DType::kUint8, bytes, static_cast<uint64_t>(rank) + bytes);
}

void check_all(Cluster& cluster, const std::vector<AnswerPtr>& answers,
               const Bytes& expected) {
  REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
  for (const auto& a : answers) {
    REQUIRE(a->is_ok());
    REQUIRE(a->output == expected);
  }
  cluster.run_idle();
  for (const auto& a : answers) {
    REQUIRE(a->times == 1);
    REQUIRE(a->memory_is_free);
    REQUIRE(a->memory_is_untouched());
  }
}

// Eager up to 1000 bytes, in chunks of 256.
ClusterOptions options_of(int32_t size) {
  return {.size = size, .chunk_bytes = 256, .eager_bytes = 1000};
}

}  // namespace

TEST_CASE("a broadcast gives everybody the root's bytes, small and large") {
  for (const size_t bytes : {0u, 1u, 256u, 1000u, 1001u, 10'000u}) {
    for (int32_t root = 0; root < 4; ++root) {
      Cluster cluster(options_of(4));
      cluster.set_all_delays(milliseconds(1));
      cluster.set_all_rates(100'000);
      const Call call = call_of(CallKind::kBroadcast, bytes, Rank(root));
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < 4; ++r)
        answers.push_back(cluster.broadcast(
            r, call, r == root ? data_of(root, bytes) : Bytes(bytes)));
      check_all(cluster, answers, data_of(root, bytes));
    }
  }
}

TEST_CASE("an allgather collects the bytes of all in rank order") {
  for (const size_t bytes : {0u, 1u, 1000u, 1001u, 5'000u}) {
    for (int32_t n = 1; n <= 5; ++n) {
      Cluster cluster(options_of(n));
      cluster.set_all_rates(100'000);
      Bytes expected;
      for (int32_t r = 0; r < n; ++r) {
        const Bytes part = data_of(r, bytes);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < n; ++r)
        answers.push_back(cluster.allgather(r, call_of(CallKind::kAllgather, bytes),
                                            data_of(r, bytes)));
      check_all(cluster, answers, expected);
    }
  }
}

TEST_CASE("a receiver may call at any point of an early block's arrival") {
  // 1000 bytes at 100 bytes/ms: begun, half here, and all here.
  for (const int ms : {0, 1, 3, 4, 5, 6, 8, 11, 12, 13, 14, 20}) {
    Cluster cluster(options_of(2));
    cluster.set_all_rates(100'000);
    const Call call = call_of(CallKind::kBroadcast, 1000, Rank(0));
    std::vector<AnswerPtr> answers = {cluster.broadcast(0, call, data_of(0, 1000))};
    cluster.run_for(milliseconds(ms));
    answers.push_back(cluster.broadcast(1, call, Bytes(1000)));
    INFO("after " << ms << " ms");
    check_all(cluster, answers, data_of(0, 1000));
  }
}

TEST_CASE("a large block waits at the sender until it is asked for") {
  Cluster cluster(options_of(2));
  const Call call = call_of(CallKind::kBroadcast, 10'000, Rank(0));
  std::vector<AnswerPtr> answers = {cluster.broadcast(0, call, data_of(0, 10'000))};
  cluster.run_for(milliseconds(1000));
  CHECK_FALSE(answers[0]->is_done());
  answers.push_back(cluster.broadcast(1, call, Bytes(10'000)));
  check_all(cluster, answers, data_of(0, 10'000));
}

TEST_CASE("a root that still sends does not mind who has its block and leaves") {
  Cluster cluster(options_of(3));
  const Call call = call_of(CallKind::kBroadcast, 1000, Rank(0));
  cluster.network.set_rate(Rank(0), Rank(2), 10'000);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 3; ++r)
    answers.push_back(cluster.broadcast(r, call, data_of(0, 1000)));
  cluster.run_for(milliseconds(1));
  REQUIRE(answers[1]->is_ok());
  cluster.group(1).leave();
  cluster.run_for(milliseconds(1));
  cluster.group(1).close_links();
  REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
  CHECK(answers[0]->is_ok());
  CHECK(answers[2]->is_ok());
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/block_exchange.h"

#include <random>

#include "harness/catch.h"
#include "harness/cluster.h"
#include "harness/spy_link.h"

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

TEST_CASE("an alltoall carries blocks of any size between any two") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto n = static_cast<int32_t>(1 + random() % 5);
    Cluster cluster(options_of(n));
    cluster.set_all_delays(milliseconds(1));
    cluster.set_all_rates(100'000);
    const size_t sizes[] = {0, 0, 1, 256, 1000, 1001, 4000};
    std::vector<std::vector<std::optional<Bytes>>> out(static_cast<size_t>(n));
    for (size_t from = 0; from < out.size(); ++from)
      for (size_t to = 0; to < out.size(); ++to)
        out[from].push_back(from == to ? std::nullopt
                                       : std::optional(random_elements(
                                             DType::kUint8, sizes[random() % 7],
                                             seed + from * 9 + to)));
    std::vector<AnswerPtr> answers;
    for (size_t r = 0; r < out.size(); ++r) {
      std::vector<std::optional<size_t>> in;
      for (size_t from = 0; from < out.size(); ++from)
        in.push_back(from == r ? std::nullopt : std::optional(out[from][r]->size()));
      cluster.run_for(milliseconds(static_cast<int64_t>(random() % 30)));
      answers.push_back(cluster.exchange(static_cast<int32_t>(r),
                                         call_of(CallKind::kAlltoall, 0), out[r], in));
    }
    INFO("seed " << seed);
    REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
    for (size_t r = 0; r < out.size(); ++r) {
      Bytes expected;
      for (size_t from = 0; from < out.size(); ++from)
        if (from != r)
          expected.insert(expected.end(), out[from][r]->begin(), out[from][r]->end());
      REQUIRE(answers[r]->is_ok());
      REQUIRE(answers[r]->output == expected);
    }
    cluster.run_idle();
    for (const auto& a : answers) CHECK(a->memory_is_free);
  }
}

TEST_CASE("two members that disagree about a block's size both hear it") {
  // Below and above the eager size, so that either may wait for the other.
  for (const size_t sent : {0u, 10u, 1000u, 5000u}) {
    for (const size_t expected : {0u, 10u, 1000u, 5000u}) {
      if (sent == expected) continue;
      for (const int32_t late : {0, 1}) {
        Cluster cluster(options_of(2));
        const Call call = call_of(CallKind::kAlltoall, 0);
        std::vector<AnswerPtr> answers(2);
        for (const int32_t r : {1 - late, late}) {
          answers[static_cast<size_t>(r)] =
              r == 0 ? cluster.exchange(0, call, {std::nullopt, Bytes(sent)}, {})
                     : cluster.exchange(1, call, {}, {expected});
          cluster.run_for(milliseconds(10));
        }
        cluster.run_for(milliseconds(600));
        INFO(sent << " bytes sent, " << expected << " expected, late " << late);
        REQUIRE(answers[1]->is_done());
        CHECK(answers[1]->status.code() == Code::kInvalidArgument);
        const std::string& text = answers[1]->status.message();
        CHECK(text.find("rank 0 sends " + std::to_string(sent)) != std::string::npos);
        CHECK(text.find("rank 1 expects " + std::to_string(expected)) !=
              std::string::npos);
        // The sender of an eager block may be through before anybody knows.
        REQUIRE(answers[0]->is_done());
        if (sent > 1000) CHECK(answers[0]->status.message() == text);
      }
    }
  }
}

TEST_CASE("members that wait for each other's root find out") {
  // Nobody has anything to send: only the question after a while can tell.
  for (const size_t bytes : {10u, 5000u}) {
    Cluster cluster(options_of(2));
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 2; ++r)
      answers.push_back(cluster.broadcast(
          r, call_of(CallKind::kBroadcast, bytes, Rank(1 - r)), Bytes(bytes)));
    cluster.run_for(milliseconds(600));
    for (const auto& a : answers) {
      REQUIRE(a->is_done());
      CHECK(a->status.message().find("broadcast(src 0, ") != std::string::npos);
      CHECK(a->status.message().find("broadcast(src 1, ") != std::string::npos);
    }
  }
}

TEST_CASE("a block of unknown size gets its memory when it comes") {
  for (const size_t bytes : {0u, 10u, 1000u, 3000u}) {
    for (const int ms : {0, 5, 50}) {
      Cluster cluster(options_of(2));
      cluster.set_all_rates(100'000);
      const Call call = call_of(CallKind::kSparseAllreduce, 0);
      const auto sender =
          cluster.exchange(0, call, {std::nullopt, data_of(0, bytes)}, {});
      cluster.run_for(milliseconds(ms));
      Bytes got;
      Status status(Code::kInternal, "not over");
      collectives::LocalCall local;
      local.in_blocks.push_back({Rank(0), nullptr, 4000});
      local.allocate = [&](Rank, size_t size) {
        got.resize(size);
        return bytes_of(got);
      };
      local.on_done = [&](const Status& s, const collectives::Outcome&) { status = s; };
      cluster.group(1).call(call, std::move(local), milliseconds(5000));
      cluster.run_for(milliseconds(1000));
      INFO(bytes << " bytes, called after " << ms << " ms");
      CHECK(status.is_ok());
      CHECK(sender->is_ok());
      CHECK(got == data_of(0, bytes));
    }
  }
}

TEST_CASE("a block of unknown size that is too large is refused") {
  Cluster cluster(options_of(2));
  const Call call = call_of(CallKind::kSparseAllreduce, 0);
  const auto sender = cluster.exchange(0, call, {std::nullopt, Bytes(3000)}, {});
  Status status;
  collectives::LocalCall local;
  local.in_blocks.push_back({Rank(0), nullptr, 2000});
  local.on_done = [&](const Status& s, const collectives::Outcome&) { status = s; };
  cluster.group(1).call(call, std::move(local), milliseconds(5000));
  cluster.run_for(milliseconds(100));
  CHECK(status.message().find("rank 0 sends 3000 bytes where rank 1 expects 2000") !=
        std::string::npos);
  CHECK(sender->is_done());
}

TEST_CASE("what all get is said to be the same for them") {
  const auto num_receivers = [](CallKind kind, bool is_same) {
    ManualClock clock;
    engine::GroupOptions options;
    options.name = "test";
    options.self = Rank(0);
    options.size = 3;
    engine::Group group(&clock, options);
    std::vector<SpyLink*> spies;
    for (int32_t r = 1; r < 3; ++r) {
      auto link = std::make_unique<SpyLink>();
      spies.push_back(link.get());
      group.attach(Rank(r), std::move(link));
    }
    Bytes memory(200);
    collectives::LocalCall local;
    for (int32_t r = 1; r < 3; ++r) {
      const size_t begin = is_same ? 0 : 50 * static_cast<size_t>(r);
      local.out_blocks.push_back({Rank(r), bytes_of(memory) + begin, 50});
    }
    group.call(call_of(kind, 50, Rank(0)), std::move(local), milliseconds(100));
    std::vector<size_t> said;
    for (const SpyLink* spy : spies)
      for (const auto& m : spy->sent) said.push_back(m.num_receivers);
    return said;
  };
  CHECK(num_receivers(CallKind::kBroadcast, true) == std::vector<size_t>{2, 2});
  CHECK(num_receivers(CallKind::kScatter, false) == std::vector<size_t>{1, 1});
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/hop_reduction.h"

#include <random>
#include <string>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

constexpr Algorithm kAll[] = {Algorithm::kRing, Algorithm::kHalvingDoubling,
                              Algorithm::kTree, Algorithm::kTwoLevel};

// Ranks take turns on two or three hosts. Some hosts have fewer ranks than others.
ClusterOptions group_of(int32_t size) {
  ClusterOptions options{.size = size};
  for (int32_t r = 0; r < size; ++r) options.hosts.push_back(r % (size < 7 ? 2 : 3));
  return options;
}

Call call_by(Algorithm algorithm, DType dtype, size_t count,
             ReduceOp op = ReduceOp::kSum) {
  Call call = allreduce_call(dtype, count, op);
  call.algorithm = algorithm;
  return call;
}

std::vector<Bytes> inputs_of(int32_t size, const Call& call) {
  std::vector<Bytes> inputs;
  for (int32_t r = 0; r < size; ++r)
    inputs.push_back(random_elements(call.dtype, call.count,
                                     call.count * 100 + static_cast<uint64_t>(r)));
  return inputs;
}

// The result of the plans, computed hop by hop on whole tensors.
Bytes by_plan(const Call& call, std::vector<Bytes> have) {
  const auto n = static_cast<int32_t>(have.size());
  const size_t element = size_of(call.dtype);
  const auto reduce = kernels::find_reduce(call.op, call.dtype);
  const double mean = call.op == ReduceOp::kAvg ? 1.0 / n : 1.0;
  const auto plan_of = [&](int32_t r) {
    return collectives::HopPlan(call.algorithm, n, Rank(r), group_of(n).hosts);
  };
  const collectives::ShardPlan cut(call.count, element, plan_of(0).num_shards(), 1);
  for (int32_t k = 0; k < plan_of(0).num_hops(); ++k) {
    const auto before = have;
    for (int32_t r = 0; r < n; ++r) {
      const auto in = plan_of(r).hop(k).receive;
      if (in.peer == kNoRank) continue;
      const size_t begin = cut.first_byte(in.shards.first);
      const size_t bytes = cut.first_byte(in.shards.end) - begin;
      const auto* came = before[static_cast<size_t>(in.peer.value)].data() + begin;
      auto* own = have[static_cast<size_t>(r)].data() + begin;
      if (k >= plan_of(r).num_folds()) {
        std::copy_n(came, bytes, own);
      } else if (bytes > 0) {
        const void* sources[] = {own, came};
        const bool is_last = k + 1 == plan_of(r).num_folds();
        reduce(own, sources, 2, bytes / element, is_last ? mean : 1.0);
      }
    }
  }
  return have.back();
}

struct Way {
  bool in_place = true;
  int32_t late = -1;  // calls a second after the others
  uint64_t seed = 0;  // of the random delays between ranks
};

// Runs the call on all ranks and compares every bit.
void check(const ClusterOptions& options, const Call& call, const Way& way) {
  INFO(describe(call) << " on " << options.size << ", late " << way.late);
  Cluster cluster(options);
  std::mt19937_64 random(way.seed);
  for (int32_t a = 0; a < options.size; ++a) {
    for (int32_t b = 0; b < options.size; ++b) {
      if (a == b) continue;
      cluster.network.set_delay(Rank(a), Rank(b), milliseconds(random() % 20));
      cluster.network.set_rate(Rank(a), Rank(b), 100'000 + random() % 1'000'000);
    }
  }
  const auto inputs = inputs_of(options.size, call);
  std::vector<AnswerPtr> answers(inputs.size());
  const auto start = [&](int32_t r) {
    const auto i = static_cast<size_t>(r);
    answers[i] =
        cluster.allreduce(r, call, inputs[i], milliseconds(60'000), way.in_place);
  };
  for (int32_t r = 0; r < options.size; ++r)
    if (r != way.late) start(r);
  if (way.late >= 0) {
    cluster.run_for(milliseconds(1000));
    for (const auto& a : answers) REQUIRE((a == nullptr || !a->is_done()));
    start(way.late);
  }
  REQUIRE(cluster.run_until_done(answers, milliseconds(60'000)));
  const Bytes expected = by_plan(call, inputs);
  for (const auto& a : answers) {
    REQUIRE(a->is_ok());
    REQUIRE(a->output == expected);
  }
  const double scale = call.op == ReduceOp::kAvg ? 1.0 / options.size : 1.0;
  if (!is_floating(call.dtype) && options.size > 1)  // equal in any order
    REQUIRE(expected == folded(call, inputs, all_ranks(options.size), scale));
  cluster.run_idle();
  for (const auto& a : answers) {
    REQUIRE(a->times == 1);
    REQUIRE(a->memory_is_free);
    REQUIRE(a->memory_is_untouched());
  }
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every algorithm gives the result of its hops on all ranks, for each size") {
  for (const Algorithm algorithm : kAll)
    for (int32_t n = 1; n <= 9; ++n)
      for (const size_t count : {0u, 1u, 3u, 64u, 1001u, 3000u})
        for (const DType dtype : {DType::kFloat32, DType::kInt32})
          check(group_of(n), call_by(algorithm, dtype, count),
                {.in_place = n % 2 == 0, .seed = count});
}

TEST_CASE("every algorithm can reduce every op and dtype that is defined") {
  for (const Algorithm algorithm : kAll)
    for (const int32_t n : {2, 3}) {
      auto options = group_of(n);
      options.chunk_bytes = 100;  // not a multiple of 8 or 16
      for (const DType dtype : all_dtypes())
        for (const ReduceOp op : all_ops())
          if (is_pair_defined(op, dtype))
            check(options, call_by(algorithm, dtype, 77, op), {});
    }
}

TEST_CASE("every algorithm waits for one late rank, at any place") {
  for (const Algorithm algorithm : kAll)
    for (const int32_t n : {4, 5})
      for (int32_t late = 0; late < n; ++late)
        for (const size_t count : {3u, 1000u})
          check(group_of(n), call_by(algorithm, DType::kFloat32, count),
                {.in_place = false, .late = late});
}

TEST_CASE("the bits of a sum do not depend on the order of arrival") {
  for (const Algorithm algorithm : kAll)
    for (uint64_t seed = 1; seed <= 40; ++seed)
      check(group_of(7), call_by(algorithm, DType::kFloat32, 700), {.seed = seed});
}

TEST_CASE("calls with different algorithms and priorities run at the same time") {
  Cluster cluster(group_of(5));
  cluster.set_all_delays(milliseconds(2));
  cluster.set_all_rates(200'000);
  std::vector<AnswerPtr> answers;
  std::vector<Bytes> expected;
  for (size_t i = 0; i < 32; ++i) {
    const auto algorithm = static_cast<Algorithm>(i % kNumAlgorithms);
    const Call call = call_by(algorithm, DType::kInt64, 40 * i);
    const auto inputs = inputs_of(5, call);
    expected.push_back(folded(call, inputs, all_ranks(5), 1.0));
    for (int32_t r = 0; r < 5; ++r)
      answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)],
                                          milliseconds(60'000), true,
                                          static_cast<Priority>(i % 3)));
  }
  REQUIRE(cluster.run_until_done(answers, milliseconds(60'000)));
  for (size_t i = 0; i < answers.size(); ++i) {
    REQUIRE(answers[i]->is_ok());
    REQUIRE(answers[i]->output == expected[i / 5]);
  }
}

TEST_CASE(
    "with two levels little data goes between hosts, for any placement of the ranks") {
  // A link of the cluster connects two ranks, so ranks of a host do not share their
  // link. Links between hosts are slow, so hops within a host take almost no time.
  for (const bool is_interleaved : {true, false}) {
    ClusterOptions options{.size = 6};
    for (int32_t r = 0; r < 6; ++r)
      options.hosts.push_back(is_interleaved ? r % 2 : r / 3);
    Cluster cluster(options);
    for (int32_t a = 0; a < 6; ++a)
      for (int32_t b = 0; b < 6; ++b)
        if (a != b)
          cluster.network.set_rate(Rank(a), Rank(b),
                                   options.hosts[static_cast<size_t>(a)] ==
                                           options.hosts[static_cast<size_t>(b)]
                                       ? 1'000'000'000
                                       : 100'000);
    const Call call = call_by(Algorithm::kTwoLevel, DType::kInt64, 6000);
    const auto inputs = inputs_of(6, call);
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 6; ++r)
      answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
    // Two hops with a sixth of 48 kB each take 160 ms. A ring would need ten such hops.
    REQUIRE(cluster.run_until_done(answers, milliseconds(250)));
    for (const auto& a : answers)
      CHECK(a->output == folded(call, inputs, all_ranks(6), 1.0));
  }
}

TEST_CASE("ranks that use different algorithms get an error that names both") {
  Cluster cluster({.size = 3});
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 3; ++r) {
    const Call call =
        call_by(r == 1 ? Algorithm::kTwoLevel : Algorithm::kRing, DType::kFloat32, 100);
    answers.push_back(cluster.allreduce(r, call, inputs_of(3, call)[0]));
  }
  REQUIRE(cluster.run_until_done(answers, milliseconds(2000)));
  for (const auto& a : answers) {
    CHECK(a->status.code() == Code::kInvalidArgument);
    CHECK(has(a->status.message(), "all_reduce(sum, float32[100]) by ring"));
    CHECK(has(a->status.message(), "all_reduce(sum, float32[100]) by two_level"));
  }
}

TEST_CASE(
    "all ranks name a rank that dies at any moment, and no memory is written to "
    "afterwards") {
  for (const Algorithm algorithm : kAll) {
    const Call call = call_by(algorithm, DType::kFloat32, 2000);
    for (int32_t dead = 0; dead < 5; ++dead) {
      for (int moment = 0; moment < 60; moment += 7) {
        INFO(describe(call) << ", rank " << dead << " after " << moment << " ms");
        Cluster cluster(group_of(5));
        cluster.set_all_delays(milliseconds(2));
        cluster.set_all_rates(500'000);
        std::vector<AnswerPtr> answers;
        const auto inputs = inputs_of(5, call);
        for (int32_t r = 0; r < 5; ++r)
          answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
        cluster.run_for(milliseconds(moment));
        cluster.kill(dead);
        answers.erase(answers.begin() + dead);
        REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
        for (const auto& a : answers) {
          if (a->is_ok()) {
            CHECK(a->output == by_plan(call, inputs));
            continue;
          }
          CHECK(a->status.code() == Code::kPeerLost);
          CHECK(a->status.culprit() == Rank(dead));
        }
        cluster.run_idle();
        for (const auto& a : answers) CHECK(a->memory_is_untouched());
      }
    }
  }
}

TEST_CASE(
    "a time-out names the rank that has not called, though ranks wait for other "
    "ranks") {
  for (const Algorithm algorithm : kAll) {
    Cluster cluster(group_of(6));
    cluster.set_all_delays(milliseconds(1));
    const Call call = call_by(algorithm, DType::kFloat32, 500);
    std::vector<AnswerPtr> answers;
    for (const int32_t r : {0, 1, 2, 4, 5})
      answers.push_back(
          cluster.allreduce(r, call, inputs_of(6, call)[0], milliseconds(300)));
    REQUIRE(cluster.run_until_done(answers, milliseconds(400)));
    for (const auto& a : answers) {
      INFO(a->status.message());
      CHECK(a->status.code() == Code::kTimedOut);
      CHECK(has(a->status.message(), "still missing: rank 3 (its last call"));
      CHECK(a->status.culprit() == Rank(3));
    }
  }
}

TEST_CASE("a rank that stands still ends the calls that wait for it, on all ranks") {
  for (const Algorithm algorithm : kAll) {
    for (int32_t still = 0; still < 5; ++still) {
      auto options = group_of(5);
      options.heartbeat = {milliseconds(100), milliseconds(500)};
      Cluster cluster(options);
      cluster.set_all_delays(milliseconds(1));
      cluster.run_for(milliseconds(200));
      cluster.stop(still, milliseconds(20'000));
      const Call call = call_by(algorithm, DType::kFloat32, 2000);
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < 5; ++r)
        if (r != still)
          answers.push_back(cluster.allreduce(r, call, inputs_of(5, call)[0]));
      INFO(describe(call) << ", rank " << still);
      REQUIRE(cluster.run_until_done(answers, milliseconds(2000)));
      for (const auto& a : answers) {
        CHECK(a->status.code() == Code::kPeerLost);
        CHECK(a->status.culprit() == Rank(still));
      }
    }
  }
}

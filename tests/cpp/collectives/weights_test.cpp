// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/weights.h"

#include <cmath>
#include <limits>
#include <vector>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::WeightedMean;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr DType kFloating[] = {DType::kFloat16, DType::kBFloat16,  DType::kFloat32,
                               DType::kFloat64, DType::kComplex64, DType::kComplex128};

std::vector<Bytes> inputs_of(DType dtype, size_t count, size_t num) {
  std::vector<Bytes> inputs;
  for (uint64_t k = 0; k < num; ++k)
    inputs.push_back(random_elements(dtype, count, 10 + k));
  return inputs;
}

Bytes fold(DType dtype, const std::vector<Bytes>& inputs,
           const std::vector<double>& weights) {
  std::vector<const void*> sources;
  for (const Bytes& input : inputs) sources.push_back(input.data());
  Bytes out(inputs.front().size(), 0xee);
  WeightedMean(weights).fold(out.data(), sources.data(),
                             kernels::find_reduce(ReduceOp::kAvg, dtype), dtype,
                             out.size() / size_of(dtype));
  return out;
}

Bytes mean(DType dtype, const std::vector<Bytes>& inputs,
           const std::vector<Rank>& ranks) {
  const Call call =
      allreduce_call(dtype, inputs.front().size() / size_of(dtype), ReduceOp::kAvg);
  return folded(call, inputs, ranks, 1.0 / static_cast<double>(ranks.size()));
}

Bytes of_floats(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A mean with weights on `size` members.
Call weighted_call(size_t count, bool skips = false) {
  Call call = allreduce_call(DType::kFloat32, count, ReduceOp::kAvg);
  call.is_weighted = true;
  if (skips) {
    call.policy.kind = straggler::Kind::kSkip;
    call.policy.floor = milliseconds(20);
    call.policy.ceiling = milliseconds(100);
  }
  return call;
}

// Result for the elements of a shard of these contributors.
Bytes weighted_mean(const std::vector<Bytes>& inputs,
                    const std::vector<double>& weights,
                    const std::vector<Rank>& ranks) {
  std::vector<Bytes> given;
  std::vector<double> of_them;
  for (const Rank r : ranks) {
    given.push_back(inputs[static_cast<size_t>(r.value)]);
    of_them.push_back(weights[static_cast<size_t>(r.value)]);
  }
  return fold(DType::kFloat32, given, of_them);
}

double total(const std::vector<double>& weights, const std::vector<Rank>& ranks) {
  double sum = 0;
  for (const Rank r : ranks) sum += weights[static_cast<size_t>(r.value)];
  return sum;
}

// Empty if each shard of the answer is the weighted mean of its contributors.
std::string wrong_shard(const Answer& answer, const std::vector<Bytes>& inputs,
                        const std::vector<double>& weights) {
  for (const auto& shard : answer.outcome.shards) {
    const Bytes expected = weighted_mean(inputs, weights, shard.contributors);
    if (shard.weight != total(weights, shard.contributors)) return "weight";
    const size_t begin = shard.first_element * sizeof(float);
    const size_t bytes = shard.num_elements * sizeof(float);
    if (bytes > 0 &&
        std::memcmp(answer.output.data() + begin, expected.data() + begin, bytes) != 0)
      return concat("shard of ", shard.owner.value);
  }
  return "";
}

}  // namespace

// ---- the fold ----

TEST_CASE("equal weights give the bits of a mean without weights") {
  for (const DType dtype : kFloating) {
    for (const size_t num : {1u, 2u, 3u, 5u, 9u}) {
      const auto inputs = inputs_of(dtype, 1100, num);
      const Bytes expected = mean(dtype, inputs, all_ranks(static_cast<int32_t>(num)));
      for (const double weight : {1.0, 3.0, 0.1, 1e-300, 1e300}) {
        const Bytes out = fold(dtype, inputs, std::vector<double>(num, weight));
        CHECK(out == expected);
      }
    }
  }
}

TEST_CASE("a weighted fold is near the weighted mean in double precision") {
  const auto inputs = inputs_of(DType::kFloat32, 2000, 4);
  const std::vector<double> weights{3, 0.5, 1e4, 7};
  const Bytes out = fold(DType::kFloat32, inputs, weights);
  for (size_t i = 0; i < 2000; ++i) {
    double sum = 0, size = 0;
    for (size_t k = 0; k < 4; ++k) {
      float value = 0;
      std::memcpy(&value, &inputs[k][4 * i], sizeof value);
      sum += weights[k] * static_cast<double>(value);
      size += weights[k] * std::abs(static_cast<double>(value));
    }
    float value = 0;
    std::memcpy(&value, &out[4 * i], sizeof value);
    REQUIRE(std::abs(static_cast<double>(value) - sum / 10010.5) <=
            4e-7 * size / 10010.5);
  }
}

TEST_CASE("a contribution of weight 0 does not count at all") {
  for (const DType dtype : kFloating) {
    const auto inputs = inputs_of(dtype, 300, 3);
    CHECK(fold(dtype, inputs, {2, 0, 2}) == mean(dtype, inputs, {Rank(0), Rank(2)}));
    CHECK(fold(dtype, inputs, {0, 5, 0}) == mean(dtype, inputs, {Rank(1)}));
    CHECK(fold(dtype, inputs, {0, 0, 0}) == Bytes(inputs.front().size(), 0));
  }
  const std::vector<Bytes> wild{of_floats({static_cast<float>(kNan), INFINITY}),
                                of_floats({1, 2}), of_floats({4, 8})};
  CHECK(fold(DType::kFloat32, wild, {0, 2, 1}) == of_floats({2, 4}));
}

TEST_CASE("large and tiny weights neither overflow nor vanish") {
  const std::vector<Bytes> inputs{of_floats({1e30f}), of_floats({2e30f})};
  CHECK(fold(DType::kFloat32, inputs, {1e300, 3e299}) ==
        fold(DType::kFloat32, inputs, {10, 3}));
  CHECK(fold(DType::kFloat32, inputs, {1e-300, 3e-300}) ==
        fold(DType::kFloat32, inputs, {1, 3}));
}

// ---- bytes and checks ----

TEST_CASE("a weight is the same after its bytes") {
  for (const double weight : {0.0, 1.0, 0.1, 1e-320, collectives::kMaxWeight}) {
    REQUIRE(collectives::check_weight(weight).is_ok());
    CHECK(*collectives::decode_weight(collectives::encode_weight(weight)) == weight);
  }
  const double sum = 1e3 * collectives::kMaxWeight;
  CHECK(*collectives::decode_total_weight(collectives::encode_weight(sum)) == sum);
  CHECK_FALSE(collectives::decode_weight(collectives::encode_weight(sum)).is_ok());
  const auto bytes = collectives::encode_weight(1);
  CHECK_FALSE(collectives::decode_weight(std::span(bytes).first(7)).is_ok());
  CHECK_FALSE(collectives::decode_weight({}).is_ok());
  for (const double weight : {-1.0, kNan, kInfinity, -kInfinity}) {
    CHECK_FALSE(collectives::decode_weight(collectives::encode_weight(weight)).is_ok());
    CHECK_FALSE(
        collectives::decode_total_weight(collectives::encode_weight(weight)).is_ok());
    const Status status = collectives::check_weight(weight);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().find("pass a finite number") != std::string::npos);
  }
}

// ---- calls ----

TEST_CASE("a strict weighted call gives the weighted mean and the sum of the weights") {
  for (const int32_t n : {1, 2, 3, 5}) {
    for (const size_t count : {0u, 1u, 100u, 3000u}) {
      for (const bool is_equal : {false, true}) {
        Cluster cluster({.size = n});
        cluster.set_all_delays(milliseconds(1));
        const Call call = weighted_call(count);
        std::vector<Bytes> inputs;
        for (int32_t r = 0; r < n; ++r) {
          inputs.push_back(
              random_elements(call.dtype, count, static_cast<uint64_t>(r)));
          cluster.weights.push_back(is_equal ? 2.0 : r * 1.5);
        }
        std::vector<AnswerPtr> answers;
        for (int32_t r = 0; r < n; ++r)
          answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
        REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
        for (const auto& a : answers) {
          REQUIRE(a->is_ok());
          REQUIRE(a->outcome.weight == total(cluster.weights, all_ranks(n)));
          REQUIRE(a->output == weighted_mean(inputs, cluster.weights, all_ranks(n)));
          if (is_equal) REQUIRE(a->output == mean(call.dtype, inputs, all_ranks(n)));
        }
      }
    }
  }
}

TEST_CASE("each shard of a weighted call that skips is the mean of its contributors") {
  for (const bool is_slow : {false, true}) {
    Cluster cluster({.size = 3});
    cluster.set_all_delays(milliseconds(1));
    // The contribution of rank 2 is late for the shards of the others only.
    for (const int32_t to : {0, 1})
      if (is_slow) cluster.network.set_rate(Rank(2), Rank(to), 8'000);
    const Call call = weighted_call(1000, true);
    std::vector<Bytes> inputs;
    for (int32_t r = 0; r < 3; ++r)
      inputs.push_back(random_elements(call.dtype, 1000, static_cast<uint64_t>(r)));
    cluster.weights = {1, 2.5, 40};
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 3; ++r)
      if (r < 2 || is_slow)
        answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
    REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
    if (!is_slow) answers.push_back(cluster.allreduce(2, call, inputs[2]));
    REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
    for (const auto& a : answers) {
      REQUIRE(a->is_ok());
      CHECK(a->outcome.weight == 3.5);
      CHECK(wrong_shard(*a, inputs, cluster.weights).empty());
      CHECK(a->output == answers.front()->output);
    }
  }
}

TEST_CASE(
    "all ways of a weighted call give the same bits and the same sum of weights") {
  for (const int32_t n : {1, 2, 3, 5}) {
    for (const size_t count : {0u, 1u, 7u, 3000u}) {
      std::vector<std::vector<AnswerPtr>> ways;
      std::vector<double> weights{1, 0, 2.5, 1e6, 0.125};
      weights.resize(static_cast<size_t>(n));
      for (const int way : {0, 1, 2, 3, 4}) {
        Call call = weighted_call(count, way == 2 || way == 3);
        if (way == 1) call.algorithm = Algorithm::kOneOwner;
        if (way == 3) call.policy.masks = straggler::Masks::kBucket;
        if (way == 4) call.policy.rebalance = true;
        Cluster cluster({.size = n});
        cluster.set_all_delays(milliseconds(1));
        cluster.weights = weights;
        auto& answers = ways.emplace_back();
        for (int32_t r = 0; r < n; ++r)
          answers.push_back(cluster.allreduce(
              r, call, random_elements(call.dtype, count, static_cast<uint64_t>(r))));
        REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
      }
      for (const auto& answers : ways)
        for (const auto& a : answers) {
          REQUIRE(a->is_ok());
          REQUIRE(a->outcome.weight == total(weights, all_ranks(n)));
          REQUIRE(a->output == ways.front().front()->output);
        }
    }
  }
}

TEST_CASE("each shard has its own mask, and the weights of its own contributors") {
  // The contribution of rank r is late for the shard of rank r + 1 only.
  for (const bool is_scattered : {false, true}) {
    Cluster cluster({.size = 4});
    cluster.set_all_delays(milliseconds(1));
    cluster.network.set_tap(
        [&](Rank from, Rank to, const transport::FrameHeader& h, TimePoint arrives) {
          const bool is_late = h.kind == transport::FrameKind::kContrib && h.seq == 1 &&
                               to.value == (from.value + 1) % 4;
          return is_late ? arrives + milliseconds(30) : arrives;
        });
    Call call = weighted_call(400, true);
    call.policy.floor = milliseconds(10);
    call.policy.ceiling = milliseconds(15);
    if (is_scattered) call.kind = CallKind::kReduceScatter;
    cluster.weights = {1, 10, 100, 1000};
    std::vector<Bytes> inputs;
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 4; ++r) {
      const Bytes& input = inputs.emplace_back(
          random_elements(call.dtype, 400, static_cast<uint64_t>(r)));
      std::vector<Bytes> blocks;
      for (ptrdiff_t to = 0; to < 4; ++to)
        blocks.emplace_back(input.begin() + to * 400, input.begin() + (to + 1) * 400);
      answers.push_back(is_scattered ? cluster.reduce_scatter(r, call, blocks)
                                     : cluster.allreduce(r, call, input));
    }
    REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
    for (int32_t r = 0; r < 4; ++r) {
      const Answer& a = *answers[static_cast<size_t>(r)];
      REQUIRE(a.is_ok());
      CHECK(cluster.group(r).view().number == 1);
      for (const auto& shard : a.outcome.shards) {
        const int32_t late = (shard.owner.value + 3) % 4;
        std::vector<Rank> in_time = all_ranks(4);
        in_time.erase(in_time.begin() + late);
        CHECK(shard.contributors == in_time);
        CHECK(shard.weight == 1111 - cluster.weights[static_cast<size_t>(late)]);
        if (is_scattered && shard.owner != Rank(r)) continue;
        const Bytes expected = weighted_mean(inputs, cluster.weights, in_time);
        const auto first =
            is_scattered ? r * 400 : static_cast<ptrdiff_t>(shard.first_element) * 4;
        const auto begin = expected.begin() + first;
        const auto own = a.output.begin() + (is_scattered ? 0 : first);
        CHECK(std::equal(begin, begin + static_cast<ptrdiff_t>(shard.num_elements) * 4,
                         own));
      }
      // That of the own block, or the smallest of four.
      const auto own = static_cast<size_t>((r + 3) % 4);
      CHECK(a.outcome.weight == (is_scattered ? 1111 - cluster.weights[own] : 111));
    }
  }
}

TEST_CASE("a weight belongs to one call only") {
  for (const bool skips : {false, true}) {
    Cluster cluster({.size = 3});
    cluster.set_all_delays(milliseconds(1));
    const Call call = weighted_call(100, skips);
    std::vector<Bytes> inputs;
    for (uint64_t r = 0; r < 3; ++r)
      inputs.push_back(random_elements(call.dtype, 100, r));
    for (const auto& weights : std::vector<std::vector<double>>{
             {1, 2, 4}, {4, 2, 1}, {0, 0, 0}, {1, 1, 0}, {0, 3, 0}}) {
      cluster.weights = weights;
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < 3; ++r)
        answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
      REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
      for (const auto& a : answers) {
        REQUIRE(a->is_ok());
        CHECK(a->outcome.weight == total(weights, all_ranks(3)));
        CHECK(a->output == weighted_mean(inputs, weights, all_ranks(3)));
      }
    }
  }
}

TEST_CASE("members of which only one gives a weight get an error that says so") {
  for (const bool skips : {false, true}) {
    Cluster cluster({.size = 2});
    cluster.set_all_delays(milliseconds(1));
    Call call = weighted_call(100, skips);
    const auto first = cluster.allreduce(0, call, Bytes(400));
    call.is_weighted = false;
    const auto second = cluster.allreduce(1, call, Bytes(400));
    REQUIRE(cluster.run_until_done({first, second}, milliseconds(1000)));
    for (const auto& a : {first, second}) {
      REQUIRE_FALSE(a->is_ok());
      CHECK(a->status.message().find("with a weight") != std::string::npos);
    }
  }
}

TEST_CASE("the blocks of a weighted reduce_scatter are weighted means") {
  for (const bool skips : {false, true}) {
    for (const bool is_late : {false, true}) {
      if (is_late && !skips) continue;
      Cluster cluster({.size = 3});
      cluster.set_all_delays(milliseconds(1));
      Call call = weighted_call(300, skips);
      call.kind = CallKind::kReduceScatter;
      cluster.weights = {1, 3, 0.5};
      std::vector<std::vector<Bytes>> inputs(3);
      for (uint64_t r = 0; r < 3; ++r)
        for (uint64_t to = 0; to < 3; ++to)
          inputs[r].push_back(random_elements(call.dtype, 100, 10 * r + to));
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < (is_late ? 2 : 3); ++r)
        answers.push_back(
            cluster.reduce_scatter(r, call, inputs[static_cast<size_t>(r)]));
      REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
      const auto ranks = all_ranks(is_late ? 2 : 3);
      for (size_t to = 0; to < answers.size(); ++to) {
        std::vector<Bytes> blocks;
        for (const auto& of_rank : inputs) blocks.push_back(of_rank[to]);
        REQUIRE(answers[to]->is_ok());
        CHECK(answers[to]->outcome.weight == total(cluster.weights, ranks));
        CHECK(answers[to]->output == weighted_mean(blocks, cluster.weights, ranks));
      }
    }
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of members whose buckets are ready in different orders and have different
// priorities. No member waits for ever, and no sum mixes two buckets.

#include <algorithm>
#include <numeric>
#include <random>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

using Random = std::mt19937_64;

struct Bucket {
  Call call;
  std::vector<Bytes> inputs;  // by rank
};

// Whole numbers, which differ between buckets and ranks in each element.
std::vector<Bucket> random_buckets(Random& random, int32_t size, bool differ) {
  std::vector<Bucket> buckets(1 + random() % 6);
  for (size_t b = 0; b < buckets.size(); ++b) {
    const size_t count = 1 + random() % 300 + (differ ? 301 * b : 0);
    buckets[b].call = allreduce_call(DType::kFloat32, count);
    for (int32_t r = 0; r < size; ++r) {
      Bytes bytes(4 * count);
      const auto value = static_cast<float>((b + 1) * 1000 + (1u << r));
      for (size_t i = 0; i < count; ++i) std::memcpy(&bytes[4 * i], &value, 4);
      buckets[b].inputs.push_back(std::move(bytes));
    }
  }
  return buckets;
}

ClusterOptions random_options(Random& random) {
  ClusterOptions options;
  options.size = static_cast<int32_t>(2 + random() % 3);
  options.chunk_bytes = 64 * (1 + random() % 8);
  options.window_bytes = 1500 * (1 + random() % 4);
  return options;
}

std::vector<size_t> shuffled(Random& random, size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

bool is_sum(const Answer& answer, const Bucket& bucket, int32_t size) {
  const Bytes sum = folded(bucket.call, bucket.inputs, all_ranks(size), 1.0);
  return answer.output == sum;
}

// Sets rates of some kB/s, so that nearly all data is queued when urgent data comes.
void slow_down(Cluster& cluster, Random& random) {
  cluster.set_all_delays(std::chrono::microseconds(random() % 2000));
  for (int32_t a = 0; a < cluster.size(); ++a)
    for (int32_t b = 0; b < cluster.size(); ++b)
      if (a != b)
        cluster.network.set_rate(Rank(a), Rank(b), 20'000 + random() % 80'000);
}

}  // namespace

// Like DistributedDataParallel: a bucket is called when it and all buckets before it
// are ready.
TEST_CASE("buckets that are ready in any order, with any priority, become their sums") {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const ClusterOptions options = random_options(random);
    Cluster cluster(options);
    slow_down(cluster, random);
    const auto buckets = random_buckets(random, options.size, false);
    const auto size = static_cast<size_t>(options.size);
    std::vector<std::vector<size_t>> ready(size);
    for (auto& order : ready) order = shuffled(random, buckets.size());
    std::vector<std::vector<bool>> is_ready(size,
                                            std::vector<bool>(buckets.size(), false));
    std::vector<std::vector<AnswerPtr>> answers(size);
    for (size_t step = 0; step < buckets.size(); ++step) {
      for (size_t r = 0; r < size; ++r) {
        is_ready[r][ready[r][step]] = true;
        auto& own = answers[r];
        while (own.size() < buckets.size() && is_ready[r][own.size()]) {
          const Bucket& b = buckets[own.size()];
          own.push_back(cluster.allreduce(static_cast<int32_t>(r), b.call, b.inputs[r],
                                          milliseconds(60'000), true,
                                          static_cast<Priority>(random() % 5) - 2));
        }
        cluster.run_for(std::chrono::microseconds(random() % 5000));
      }
    }
    for (const auto& own : answers) {
      REQUIRE(cluster.run_until_done(own, milliseconds(60'000)));
      for (size_t b = 0; b < buckets.size(); ++b) {
        INFO(own[b]->status.message());
        REQUIRE(own[b]->is_ok());
        REQUIRE(is_sum(*own[b], buckets[b], options.size));
      }
    }
  }
}

// Without this rule the same call number stands for different buckets.
TEST_CASE("calls in different orders end with an error, and never with a mixture") {
  size_t num_sums = 0, num_refused = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const ClusterOptions options = random_options(random);
    Cluster cluster(options);
    slow_down(cluster, random);
    const auto buckets = random_buckets(random, options.size, true);
    const auto size = static_cast<size_t>(options.size);
    std::vector<std::vector<size_t>> ready(size);
    for (auto& order : ready) {
      order = shuffled(random, buckets.size());
      if (random() % 2 == 0) std::sort(order.begin(), order.end());
    }
    std::vector<AnswerPtr> answers;
    std::vector<size_t> bucket_of;
    for (size_t step = 0; step < buckets.size(); ++step) {
      for (size_t r = 0; r < size; ++r) {
        const size_t b = ready[r][step];
        answers.push_back(cluster.allreduce(
            static_cast<int32_t>(r), buckets[b].call, buckets[b].inputs[r],
            milliseconds(60'000), true, static_cast<Priority>(random() % 5) - 2));
        bucket_of.push_back(b);
        cluster.run_for(std::chrono::microseconds(random() % 5000));
      }
    }
    REQUIRE(cluster.run_until_done(answers, milliseconds(60'000)));
    for (size_t i = 0; i < answers.size(); ++i) {
      if (answers[i]->is_ok()) {
        ++num_sums;
        REQUIRE(is_sum(*answers[i], buckets[bucket_of[i]], options.size));
      } else {
        ++num_refused;
        REQUIRE(answers[i]->status.code() == Code::kInvalidArgument);
      }
    }
  }
  CHECK(num_sums > 1000);
  CHECK(num_refused > 1000);
}

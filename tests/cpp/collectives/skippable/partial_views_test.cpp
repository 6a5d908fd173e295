// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of skippable operations in which the shard of a lost owner is divided among
// others.
#include <map>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

constexpr size_t kCount = 1'000'000;  // floats: a shard of four has 1 MB

std::vector<int32_t> owners_of(const Answer& answer) {
  std::vector<int32_t> owners;
  uint64_t next = 0;
  for (const auto& shard : answer.outcome.shards) {
    CHECK(shard.first_element == next);
    next += shard.num_elements;
    owners.push_back(shard.owner.value);
  }
  CHECK(next == kCount);
  return owners;
}

void check_same(const std::vector<AnswerPtr>& answers) {
  for (const AnswerPtr& answer : answers) {
    REQUIRE(answer->is_ok());
    CHECK(answer->output == answers.front()->output);
    CHECK(owners_of(*answer) == owners_of(*answers.front()));
  }
}

// Keeps results of `from` away from the ranks `to`.
void keep_back(Cluster& cluster, int32_t from, const std::vector<int32_t>& to) {
  cluster.network.set_tap([=](Rank a, Rank b, const transport::FrameHeader& h,
                              TimePoint arrives) {
    const bool is_kept = a == Rank(from) && h.kind == transport::FrameKind::kResult &&
                         std::find(to.begin(), to.end(), b.value) != to.end();
    return is_kept ? arrives + milliseconds(60'000) : arrives;
  });
}

}  // namespace

TEST_CASE("each remaining member gets and sends a part of the shard of a lost owner") {
  for (const bool is_small : {false, true}) {
    Cluster cluster({.size = 4,
                     .chunk_bytes = 16 << 10,
                     .min_shard_bytes = is_small ? size_t{1'000'000} : size_t{64}});
    cluster.set_all_delays(milliseconds(1));
    cluster.set_all_rates(50'000'000);
    std::map<int32_t, uint64_t> sent_again;  // bytes of contributions, by receiver
    cluster.network.set_tap(
        [&](Rank, Rank to, const transport::FrameHeader& h, TimePoint arrives) {
          if (h.view > 1 && h.kind == transport::FrameKind::kContrib)
            sent_again[to.value] += h.payload_bytes;
          return arrives;
        });
    auto answers = call_all(cluster, skip_sum_call(kCount), {0, 1, 2, 3});
    cluster.run_for(milliseconds(10));
    cluster.kill(3);
    answers.pop_back();
    REQUIRE(cluster.run_until_done(answers, milliseconds(2000)));
    check_same(answers);
    // A shard without room for two parts has one new owner.
    const std::vector<int32_t> whole = {0, 1, 2, 0}, parts = {0, 1, 2, 0, 1, 2};
    CHECK(owners_of(*answers[0]) == (is_small ? whole : parts));
    for (const auto& shard : answers[0]->outcome.shards)
      CHECK(shard.contributors.size() == 3);
    if (is_small) continue;
    for (const int32_t r : {0, 1, 2}) CHECK(sent_again[r] > 600'000);
    for (const int32_t r : {0, 1, 2}) CHECK(sent_again[r] < 700'000);
  }
}

TEST_CASE("a shard that one member has completely is passed on as a whole") {
  Cluster cluster({.size = 4, .chunk_bytes = 16 << 10});
  cluster.set_all_delays(milliseconds(1));
  keep_back(cluster, 3, {0, 2});
  auto answers = call_all(cluster, skip_sum_call(kCount), {0, 1, 2, 3});
  cluster.run_for(milliseconds(4));
  REQUIRE(answers[1]->is_ok());
  REQUIRE_FALSE(answers[0]->is_done());
  cluster.kill(3);
  answers.pop_back();
  REQUIRE(cluster.run_until_done(answers, milliseconds(2000)));
  for (const AnswerPtr& answer : answers) {
    CHECK(answer->is_ok());
    CHECK(answer->output == answers[0]->output);
    CHECK(answer->outcome.shards.size() == 4);
  }
}

TEST_CASE(
    "a member that has a shard in parts passes it on in parts, long after its call") {
  Cluster cluster({.size = 5, .chunk_bytes = 16 << 10});
  cluster.set_all_delays(milliseconds(1));
  auto answers = call_all(cluster, skip_sum_call(kCount), {0, 1, 2, 3, 4});
  cluster.run_for(std::chrono::microseconds(500));
  cluster.kill(4);
  answers.pop_back();
  // Rank 3 gets nothing of the shard of rank 0, and the others go on.
  keep_back(cluster, 0, {3});
  cluster.run_for(milliseconds(9));
  for (const size_t r : {0u, 1u, 2u}) REQUIRE(answers[r]->is_ok());
  REQUIRE_FALSE(answers[3]->is_done());
  REQUIRE(answers[0]->outcome.shards.size() == 4 + 4);
  cluster.kill(0);
  cluster.network.set_tap({});
  REQUIRE(cluster.run_until_done({answers[3]}, milliseconds(5000)));
  CHECK(answers[3]->is_ok());
  CHECK(answers[3]->output == answers[1]->output);
  CHECK(answers[3]->outcome.shards.size() == 4 + 4);
}

TEST_CASE("a member that waits for a part names the owner of the part only") {
  Cluster cluster({.size = 4, .chunk_bytes = 16 << 10});
  cluster.set_all_delays(milliseconds(1));
  const Call call = skip_sum_call(kCount);
  const Bytes input = random_elements(call.dtype, call.count, 7);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 4; ++r)
    answers.push_back(
        cluster.allreduce(r, call, input, milliseconds(r == 2 ? 14 : 10'000)));
  cluster.run_for(std::chrono::microseconds(500));
  cluster.kill(3);
  keep_back(cluster, 1, {2});
  cluster.run_for(milliseconds(20));
  REQUIRE(answers[2]->is_done());
  const std::string& text = answers[2]->status.message();
  INFO(text);
  CHECK(text.find("rank 1") != std::string::npos);
  CHECK(text.find("rank 0") == std::string::npos);
}

TEST_CASE("parts of an owner that is lost, too, go to one of the remaining members") {
  Cluster cluster({.size = 5, .chunk_bytes = 16 << 10});
  cluster.set_all_delays(milliseconds(1));
  auto answers = call_all(cluster, skip_sum_call(kCount), {0, 1, 2, 3, 4});
  cluster.run_for(std::chrono::microseconds(500));
  cluster.kill(4);
  cluster.run_for(milliseconds(4));
  cluster.kill(1);
  answers = {answers[0], answers[2], answers[3]};
  REQUIRE(cluster.run_until_done(answers, milliseconds(2000)));
  check_same(answers);
  for (const int32_t owner : owners_of(*answers[0])) {
    CHECK(owner != 1);
    CHECK(owner != 4);
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Skippable operations in which one member is late again and again: whose its shards
// are, what it sends in vain, and who is blamed for a missing result.
#include <map>

#include "harness/catch.h"
#include "harness/cluster.h"
#include "straggler/ownership.h"

using namespace aikido;
using namespace aikido::testing;
using straggler::Ownership;

namespace {

constexpr int32_t kLate = 3;
constexpr size_t kLarge = 100'000;  // floats: a shard of a third has 130 kB

bool owns(Cluster& cluster, int32_t rank) {
  const bool is_owner = cluster.group(0).view().is_owner(Rank(rank));
  for (int32_t r = 1; r < cluster.size(); ++r)
    CHECK(cluster.group(r).view().is_owner(Rank(rank)) == is_owner);
  return is_owner;
}

// All call but kLate, which does so `lag` later; all have ended when it returns.
void run_operation(Cluster& cluster, const Call& call, Duration lag) {
  const Bytes input = random_elements(call.dtype, call.count, 7);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < cluster.size(); ++r)
    if (r != kLate) answers.push_back(cluster.allreduce(r, call, input));
  cluster.run_for(lag);
  answers.push_back(cluster.allreduce(kLate, call, input));
  REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
  cluster.run_for(milliseconds(5));
  for (const AnswerPtr& answer : answers) {
    REQUIRE(answer->is_ok());
    CHECK(answer->output == answers.front()->output);
  }
}

}  // namespace

TEST_CASE("who is skipped four times in a row owns nothing, until a trial that lasts") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  const Call call = skip_sum_call(300);
  for (int op = 0; op < 3; ++op) run_operation(cluster, call, {});
  for (uint32_t op = 0; op < Ownership::kLateRun; ++op) {
    CHECK(owns(cluster, kLate));
    run_operation(cluster, call, milliseconds(80));
  }
  CHECK_FALSE(owns(cluster, kLate));
  // It has called everything; so a trial comes, which it fails and then does not.
  for (const bool is_well : {false, true}) {
    uint32_t waited = 0;
    for (; !owns(cluster, kLate) && waited < 1000; ++waited)
      run_operation(cluster, call, milliseconds(80));
    CHECK(waited > Ownership::kReturnAfter / 2);
    for (uint32_t op = 0; op < 3 * Ownership::kLateRun; ++op)
      run_operation(cluster, call, milliseconds(is_well ? 0 : 80));
    CHECK(owns(cluster, kLate) == is_well);
  }
}

TEST_CASE(
    "shards follow what is said of a link or a caller, on the word of any member") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  const Call call = skip_sum_call(300);
  const auto advise = [&](straggler::Advice advice) {
    for (int32_t r = 0; r < 4; ++r) cluster.group(r).advise(Rank(kLate), advice);
    run_operation(cluster, call, {});
  };
  run_operation(cluster, call, {});
  advise(straggler::Advice::kLink);
  CHECK_FALSE(owns(cluster, kLate));
  for (int op = 0; op < 100; ++op) run_operation(cluster, call, {});
  CHECK_FALSE(owns(cluster, kLate));
  advise(straggler::Advice::kCaller);
  CHECK(owns(cluster, kLate));
  for (uint32_t op = 0; op < 3 * Ownership::kLateRun; ++op)
    run_operation(cluster, call, milliseconds(80));
  CHECK(owns(cluster, kLate));
  advise(straggler::Advice::kNone);
  for (uint32_t op = 0; op <= Ownership::kLateRun; ++op)
    run_operation(cluster, call, milliseconds(80));
  CHECK_FALSE(owns(cluster, kLate));
}

TEST_CASE("who owns nothing and calls at the close sends nothing in vain") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(2'000'000);  // a shard in 67 ms
  const Call call = skip_sum_call(kLarge);
  for (int op = 0; op < 10; ++op) run_operation(cluster, call, {});
  for (uint32_t op = 0; op <= Ownership::kLateRun; ++op)
    run_operation(cluster, call, milliseconds(400));
  REQUIRE_FALSE(owns(cluster, kLate));

  uint64_t contributed = 0;
  Duration first_verdict{}, first_bytes{};
  const TimePoint begin = cluster.clock.now();
  cluster.network.set_tap(
      [&](Rank from, Rank to, const transport::FrameHeader& h, TimePoint arrives) {
        const Duration now = cluster.clock.now() - begin;
        if (from.value == kLate && h.kind == transport::FrameKind::kContrib)
          contributed += h.payload_bytes;
        if (to.value != kLate || h.kind != transport::FrameKind::kResult)
          return arrives;
        Duration& first = h.payload_bytes == 0 ? first_verdict : first_bytes;
        if (first == Duration{}) first = now;
        return arrives;
      });
  // It is known to be late, so the others close when they have their own contributions,
  // and the verdict is on its way when it calls.
  run_operation(cluster, call, milliseconds(83));
  CHECK(contributed == 0);
  CHECK(first_verdict > Duration{});
  CHECK(first_verdict < first_bytes);
  cluster.network.set_tap({});
}

TEST_CASE("nobody is suspected who waits for a member that is in time elsewhere") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(10'000'000);
  Call call = skip_sum_call(kLarge);
  for (int op = 0; op < 10; ++op) run_operation(cluster, call, {});
  // Rank 1 alone gets the bytes of the last one late, and has until the ceiling.
  cluster.network.set_rate(Rank(kLate), Rank(1), 3'000'000);
  for (int op = 0; op < 3; ++op) run_operation(cluster, call, {});
  CHECK(owns(cluster, 1));
}

TEST_CASE("two owners do not suspect each other") {
  Cluster cluster({.size = 3});
  cluster.set_all_delays(milliseconds(1));
  const Call call = skip_sum_call(kLarge);
  const Bytes input = random_elements(call.dtype, call.count, 7);
  cluster.kill(2);
  for (int op = 0; op < 20; ++op) {
    // After the first, what the first sends the second takes long, one way and then the
    // other.
    if (op > 0) cluster.network.set_rate(Rank(op % 2), Rank(1 - op % 2), 2'000'000);
    cluster.network.set_rate(Rank(1 - op % 2), Rank(op % 2), 100'000'000);
    std::vector<AnswerPtr> answers;
    for (const int32_t r : {0, 1}) answers.push_back(cluster.allreduce(r, call, input));
    REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
    for (const AnswerPtr& answer : answers) CHECK(answer->is_ok());
  }
  CHECK(cluster.group(0).view().is_owner(Rank(0)));
  CHECK(cluster.group(0).view().is_owner(Rank(1)));
  CHECK(cluster.group(0).view().number == 2);
}

TEST_CASE("when an uplink turns bad the others wait for its rank once, not per shard") {
  struct Row {
    uint64_t bytes_per_second;
    double most_ms;
  };
  // With the first the verdict on its shard comes through, but not the shard. Each time
  // that somebody waits in vain costs more than what is left to these.
  const Row row = GENERATE(Row{100'000, 72}, Row{5'000, 79});
  CAPTURE(row.bytes_per_second);
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(10'000'000);
  const Call call = skip_sum_call(kLarge);
  for (int op = 0; op < 20; ++op) run_operation(cluster, call, {});
  const Bytes input = random_elements(call.dtype, call.count, 7);
  const auto run_on_others = [&] {
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < cluster.size(); ++r)
      answers.push_back(cluster.allreduce(r, call, input));
    answers.pop_back();
    const TimePoint start = cluster.clock.now();
    REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
    return cluster.clock.now() - start;
  };
  CHECK(to_ms(run_on_others()) < 28);
  for (int32_t r = 0; r < kLate; ++r)
    cluster.network.set_rate(Rank(kLate), Rank(r), row.bytes_per_second);
  const Duration first = run_on_others();
  CHECK_FALSE(owns(cluster, kLate));
  CHECK(to_ms(first) < row.most_ms);
}

TEST_CASE("an owner whose caller is late is not suspected for that") {
  // Its uplink carries its contribution when the others close without it, so the result
  // of its shard comes after theirs. The last lag is longer than the operation.
  const Duration lag = milliseconds(GENERATE(50, 90, 400));
  CAPTURE(to_ms(lag));
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(1'000'000);  // a shard in 100 ms
  const Call call = skip_sum_call(kLarge);
  for (int op = 0; op < 10; ++op) run_operation(cluster, call, {});
  const uint32_t view = cluster.group(0).view().number;
  cluster.network.set_tap(
      [](Rank from, Rank, const transport::FrameHeader& h, TimePoint arrives) {
        const bool is_delayed =
            from.value == kLate && h.kind == transport::FrameKind::kResult;
        return is_delayed ? arrives + milliseconds(45) : arrives;
      });
  run_operation(cluster, call, lag);
  cluster.network.set_tap({});
  CHECK(cluster.group(0).view().number == view);
  CHECK(owns(cluster, kLate));
}

TEST_CASE("one shard without a member says that it cannot have exposed its own") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(10'000'000);
  const Call call = skip_sum_call(kLarge);
  for (int op = 0; op < 20; ++op) run_operation(cluster, call, {});
  const Bytes input = random_elements(call.dtype, call.count, 7);
  // Only the first owner, who is to change the view, has its contribution.
  cluster.network.set_rate(Rank(kLate), Rank(0), 16'000'000);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < cluster.size(); ++r)
    answers.push_back(cluster.allreduce(r, call, input));
  answers.pop_back();
  const TimePoint start = cluster.clock.now();
  cluster.run_for(milliseconds(9));
  for (int32_t r = 0; r < kLate; ++r)
    cluster.network.set_rate(Rank(kLate), Rank(r), 5'000);
  REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
  CHECK_FALSE(owns(cluster, kLate));
  CHECK(to_ms(cluster.clock.now() - start) < 78);
  CHECK(answers[0]->outcome.shards[0].contributors == all_ranks(4));
  CHECK(answers[0]->outcome.skipped == std::vector<Rank>{Rank(kLate)});
}

TEST_CASE("who must be in soon gets results with the others") {
  constexpr uint32_t kLimit = 32;
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  Call call = skip_sum_call(300);
  call.policy.max_consecutive_skips = kLimit;
  for (int op = 0; op < 3; ++op) run_operation(cluster, call, {});
  // Verdicts that go ahead of a result which leaves last.
  int num_bare = 0;
  cluster.network.set_tap(
      [&](Rank, Rank to, const transport::FrameHeader& h, TimePoint arrives) {
        const bool is_bare = h.payload_bytes == 0 && h.total_bytes > 0;
        if (h.kind == transport::FrameKind::kResult && to == Rank(kLate) && is_bare)
          ++num_bare;
        return arrives;
      });
  for (uint32_t op = 0; op < kLimit; ++op) {
    num_bare = 0;
    run_operation(cluster, call, milliseconds(80));
    INFO("skipped " << op << " times before");
    CHECK((num_bare > 0) == (op < kLimit - kLimit / 8));
  }
  cluster.network.set_tap({});
}

TEST_CASE(
    "who was too slow with its result gets no time at the new owner of its shard") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(10'000'000);
  const Call call = skip_sum_call(kLarge);
  for (int op = 0; op < 20; ++op) run_operation(cluster, call, {});
  const Bytes input = random_elements(call.dtype, call.count, 7);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < cluster.size(); ++r)
    answers.push_back(cluster.allreduce(r, call, input));
  answers.pop_back();
  const TimePoint start = cluster.clock.now();
  cluster.run_for(milliseconds(15));  // all contributions are where they belong
  for (int32_t r = 0; r < kLate; ++r)
    cluster.network.set_rate(Rank(kLate), Rank(r), 20'000);
  REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
  CHECK_FALSE(owns(cluster, kLate));
  CHECK(answers[0]->outcome.shards[0].contributors == all_ranks(4));
  CHECK(answers[0]->outcome.skipped == std::vector<Rank>{Rank(kLate)});
  CHECK(to_ms(cluster.clock.now() - start) < 104);
}

TEST_CASE(
    "a result that one other has is not waited for because that one has gone on") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(10'000'000);
  const Call call = skip_sum_call(kLarge);
  for (int op = 0; op < 20; ++op) run_operation(cluster, call, {});
  const Bytes input = random_elements(call.dtype, call.count, 7);
  // To 1 and 2 neither the result of the last owner comes, nor an answer.
  cluster.network.set_tap([](Rank from, Rank to, const transport::FrameHeader& h,
                             TimePoint arrives) {
    const bool is_slow =
        from.value == kLate && to.value > 0 && h.kind != transport::FrameKind::kContrib;
    return is_slow ? arrives + milliseconds(1000) : arrives;
  });
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < cluster.size(); ++r)
    answers.push_back(cluster.allreduce(r, call, input));
  const TimePoint start = cluster.clock.now();
  REQUIRE(cluster.run_until_done({answers[0], answers[kLate]}, milliseconds(200)));
  for (const int32_t r : {0, kLate}) cluster.allreduce(r, call, input);
  REQUIRE(cluster.run_until_done({answers[1], answers[2]}, milliseconds(5000)));
  CHECK(to_ms(cluster.clock.now() - start) < 100);
  CHECK(answers[1]->outcome.shards[kLate].contributors == all_ranks(4));
  CHECK(answers[1]->output == answers[kLate]->output);
}

TEST_CASE("of two owners one that is slow is found out by those that own nothing") {
  Cluster cluster({.size = 5, .min_shard_bytes = 128 << 10});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(10'000'000);
  const Call call = skip_sum_call((256 << 10) / 4);
  for (int op = 0; op < 10; ++op) run_operation(cluster, call, {});
  const auto owner = [&] {
    const auto& owners = cluster.group(0).view().cuts.back().owners;
    return owners.front();
  };
  const Rank slow = owner();
  for (int32_t r = 0; r < cluster.size(); ++r)
    if (r != slow.value) cluster.network.set_rate(slow, Rank(r), 100'000);
  run_operation(cluster, call, {});
  CHECK_FALSE(owns(cluster, slow.value));
}

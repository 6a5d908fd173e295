// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of skippable operations in which one member is late again and again: the owners
// of its shards, and the data that it sends in vain.
#include "harness/late_member.h"
#include "straggler/ownership.h"

using namespace aikido;
using namespace aikido::testing;
using straggler::Ownership;

TEST_CASE(
    "a member that is skipped four times in a row owns nothing until a trial that "
    "lasts") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  const Call call = skip_sum_call(300);
  for (int op = 0; op < 3; ++op) run_operation(cluster, call, {});
  for (uint32_t op = 0; op < Ownership::kLateRun; ++op) {
    CHECK(owns(cluster, kLate));
    run_operation(cluster, call, milliseconds(80));
  }
  CHECK_FALSE(owns(cluster, kLate));
  // It has called everything, so a trial comes. It fails the first one and passes the
  // second.
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

TEST_CASE("owners compare their operations with the same operations under WaitAll") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  const Call call = skip_sum_call(300);
  const auto& counters = cluster.group(0).counters();
  for (int op = 0; op < 6; ++op) run_operation(cluster, call, {});
  CHECK(counters.replayed_operations >= 4);
  CHECK(counters.replayed_bytes >= 4 * call.bytes());
  CHECK(counters.replayed_bytes_in == counters.replayed_bytes);
  for (int op = 0; op < 40; ++op) run_operation(cluster, call, milliseconds(80));
  CHECK(counters.replayed_bytes_in < counters.replayed_bytes);
  CHECK(counters.replayed_bytes_in >= counters.replayed_bytes / 2);
  CHECK(counters.replayed_wait_all_us > counters.replayed_us);
}

TEST_CASE("a member whose contributions are cut off in a row knows it") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  const Call call = skip_sum_call(300);
  const auto is_cut_off = [&](int32_t rank) {
    return cluster.group(rank).outlook().is_cut_off();
  };
  for (int op = 0; op < 3; ++op) run_operation(cluster, call, {});
  for (int op = 0; op < 32; ++op) {
    CHECK_FALSE(is_cut_off(kLate));
    run_operation(cluster, call, milliseconds(80));
  }
  CHECK(is_cut_off(kLate));
  CHECK_FALSE(is_cut_off(0));
  for (int op = 0; op < 40; ++op) run_operation(cluster, call, {});
  CHECK_FALSE(is_cut_off(kLate));
}

TEST_CASE("shards follow the advice about a link or a caller, given by any member") {
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

TEST_CASE("half of the members keep their shards when two owners are late at once") {
  Cluster cluster({.size = 7});
  cluster.set_all_delays(milliseconds(1));
  const Call call = skip_sum_call(700);
  const auto num_owners = [&](int32_t seen_by) {
    int32_t num = 0;
    for (int32_t r = 0; r < cluster.size(); ++r)
      num += cluster.group(seen_by).view().is_owner(Rank(r)) ? 1 : 0;
    return num;
  };
  run_operation(cluster, call, {});
  for (int32_t r = 0; r < cluster.size(); ++r)
    for (const int32_t slow : {5, 6})
      cluster.group(r).advise(Rank(slow), straggler::Advice::kLink);
  for (int op = 0; op < 10; ++op) run_operation(cluster, call, {});
  REQUIRE(num_owners(0) == 5);
  // The other three of five owners miss two owners in the same turn.
  cluster.network.set_tap(
      [](Rank from, Rank, const transport::FrameHeader& h, TimePoint arrives) {
        const bool is_late = from == Rank(3) || from == Rank(4);
        return is_late && h.kind == transport::FrameKind::kResult
                   ? arrives + milliseconds(1000)
                   : arrives;
      });
  run_operation(cluster, call, {});
  cluster.network.set_tap({});
  for (int32_t r = 0; r < cluster.size(); ++r) CHECK(num_owners(r) == 4);
}

namespace {

std::vector<AnswerPtr> start(Cluster& cluster, int32_t but) {
  const Call call = skip_sum_call(300);
  const Bytes input = random_elements(call.dtype, call.count, 7);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < cluster.size(); ++r)
    if (r != but) answers.push_back(cluster.allreduce(r, call, input));
  return answers;
}

// Runs more operations than the warm-up.
void run_ten(Cluster& cluster) {
  cluster.set_all_delays(milliseconds(1));
  for (int op = 0; op < 10; ++op)
    REQUIRE(cluster.run_until_done(start(cluster, -1), milliseconds(5000)));
}

// Returns the time that the others take while `rank` stands still. The rank is back at
// the end.
Duration run_behind(Cluster& cluster, int32_t rank, Duration still) {
  cluster.stop(rank, still);
  auto answers = start(cluster, rank);
  const TimePoint begin = cluster.clock.now();
  REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
  const Duration took = cluster.clock.now() - begin;
  cluster.run_for(still);
  const Call call = skip_sum_call(300);
  answers.push_back(
      cluster.allreduce(rank, call, random_elements(call.dtype, call.count, 7)));
  end_operation(cluster, answers);
  return took;
}

}  // namespace

TEST_CASE(
    "a member that stood still once owns shards again when the next one stands still") {
  const int32_t size = GENERATE(3, 5);
  const bool is_link_slow = GENERATE(false, true);
  CAPTURE(size, is_link_slow);
  Cluster cluster({.size = size});
  run_ten(cluster);
  // As many members as can be spared, except the next one.
  for (int32_t r = 1; r <= size / 2; ++r) {
    CHECK(run_behind(cluster, r, milliseconds(200)) < milliseconds(200));
    REQUIRE(cluster.group(0).view().has(Rank(r)));
    REQUIRE_FALSE(owns(cluster, r));
    if (is_link_slow)
      for (int32_t by = 0; by < size; ++by)
        cluster.group(by).advise(Rank(r), straggler::Advice::kLink);
  }
  const Duration took = run_behind(cluster, size - 1, milliseconds(900));
  CHECK((took < milliseconds(200)) == !is_link_slow);
  for (int32_t r = 1; r <= size / 2; ++r) CHECK(owns(cluster, r) == !is_link_slow);
}

TEST_CASE(
    "shards return to no member that has not called, and not if all members are slow") {
  const bool are_all_slow = GENERATE(false, true);
  CAPTURE(are_all_slow);
  Cluster cluster({.size = are_all_slow ? 4 : 3});
  run_ten(cluster);
  run_behind(cluster, 1, milliseconds(200));
  REQUIRE_FALSE(owns(cluster, 1));
  cluster.network.set_tap(
      [&](Rank from, Rank, const transport::FrameHeader& h, TimePoint arrives) {
        const bool is_late = are_all_slow || from == Rank(2);
        return is_late && h.kind == transport::FrameKind::kResult
                   ? arrives + milliseconds(1500)
                   : arrives;
      });
  auto answers = start(cluster, are_all_slow ? -1 : 1);
  cluster.run_for(milliseconds(500));
  CHECK_FALSE(owns(cluster, 1));
  if (!are_all_slow) {
    answers.push_back(cluster.allreduce(1, skip_sum_call(300), Bytes(1200)));
    cluster.run_for(milliseconds(400));
    CHECK(owns(cluster, 1));
  }
  cluster.network.set_tap({});
}

TEST_CASE("a member that owns nothing and calls at the close sends nothing in vain") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(2'000'000);  // a shard in 67 ms
  const Call call = skip_sum_call(kLarge);
  for (int op = 0; op < 10; ++op) run_operation(cluster, call, {});
  for (uint32_t op = 0; op <= Ownership::kLateRun; ++op)
    run_operation(cluster, call, milliseconds(400));
  REQUIRE_FALSE(owns(cluster, kLate));

  uint64_t contributed = 0;
  cluster.network.set_tap(
      [&](Rank from, Rank, const transport::FrameHeader& h, TimePoint arrives) {
        if (from.value == kLate && h.kind == transport::FrameKind::kContrib)
          contributed += h.payload_bytes;
        return arrives;
      });
  // The member is known to be late, so the others close when they have their own
  // contributions. The result header is on its way when it calls.
  run_operation(cluster, call, milliseconds(83));
  CHECK(contributed == 0);
  cluster.network.set_tap({});
}

TEST_CASE("results leave last for a member that has not called since a skip") {
  constexpr uint32_t kLimit = 32;
  // `calls_from`: operation from which the member makes one late call in each
  // operation. `first`: first operation whose result it gets with the others again. A
  // member that must contribute soon gets it so without a call.
  struct Row {
    uint32_t calls_from, first;
  };
  const Row row = GENERATE(Row{0, 0}, Row{3, 4}, Row{9, 10}, Row{kLimit, kLimit - 10});
  CAPTURE(row.calls_from);
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  Call call = skip_sum_call(300);
  call.policy.max_consecutive_skips = kLimit;
  for (int op = 0; op < 3; ++op) run_operation(cluster, call, {});
  // Result headers that are sent ahead of a result that leaves last.
  int num_bare = 0;
  cluster.network.set_tap(
      [&](Rank, Rank to, const transport::FrameHeader& h, TimePoint arrives) {
        const bool is_bare = h.payload_bytes == 0 && h.total_bytes > 0;
        if (h.kind == transport::FrameKind::kResult && to == Rank(kLate) && is_bare)
          ++num_bare;
        return arrives;
      });
  const Bytes input = random_elements(call.dtype, call.count, 7);
  for (uint32_t op = 0; op < kLimit; ++op) {
    num_bare = 0;
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < kLate; ++r)
      answers.push_back(cluster.allreduce(r, call, input));
    REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
    cluster.run_for(milliseconds(80));
    if (op >= row.calls_from) cluster.allreduce(kLate, call, input);
    cluster.run_for(milliseconds(5));
    INFO("skipped " << op << " times before");
    CHECK((num_bare > 0) == (op >= 1 && op < row.first));
  }
  cluster.network.set_tap({});
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of skippable operations in which the result of an owner is missing: which owner
// is suspected, and when.
#include "harness/late_member.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

// Four members with equal links that know the usual time of a call.
struct Settled {
  explicit Settled(int num_ops = 20, uint64_t bytes_per_second = 10'000'000,
                   Duration floor = milliseconds(5), size_t chunk_bytes = 16 << 10)
      : cluster({.size = 4, .chunk_bytes = chunk_bytes}) {
    call.policy.floor = floor;
    call.policy.worth = 0.5;
    cluster.set_all_delays(milliseconds(1));
    cluster.set_all_rates(bytes_per_second);
    for (int op = 0; op < num_ops; ++op) run_operation(cluster, call, {});
  }

  void slow_uplink(uint64_t bytes_per_second) {
    for (int32_t r = 0; r < kLate; ++r)
      cluster.network.set_rate(Rank(kLate), Rank(r), bytes_per_second);
  }
  // The answers of all members, kLate last.
  std::vector<AnswerPtr> call_all() {
    start = cluster.clock.now();
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < cluster.size(); ++r)
      answers.push_back(cluster.allreduce(r, call, input));
    return answers;
  }
  // Runs until these have ended. Returns the milliseconds since the call.
  double took(const std::vector<AnswerPtr>& answers) {
    REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
    return to_ms(cluster.clock.now() - start);
  }
  double took_by_others(std::vector<AnswerPtr> answers) {
    answers.pop_back();
    return took(answers);
  }

  Cluster cluster;
  Call call = skip_sum_call(kLarge);
  Bytes input = random_elements(call.dtype, call.count, 7);
  TimePoint start{};
};

}  // namespace

TEST_CASE(
    "an owner that waits for a member that is in time elsewhere is not suspected") {
  Settled s(10);
  // Only rank 1 gets the bytes of kLate late, by less than the grace.
  s.cluster.network.set_rate(Rank(kLate), Rank(1), 8'000'000);
  for (int op = 0; op < 3; ++op) run_operation(s.cluster, s.call, {});
  CHECK(owns(s.cluster, 1));
}

TEST_CASE("two owners do not suspect each other") {
  Cluster cluster({.size = 3});
  cluster.set_all_delays(milliseconds(1));
  const Call call = skip_sum_call(kLarge);
  const Bytes input = random_elements(call.dtype, call.count, 7);
  cluster.kill(2);
  for (int op = 0; op < 20; ++op) {
    // After the first operation one owner's data takes long, in turns one and the
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

TEST_CASE("an owner of a shard that also owns a part counts as one owner") {
  const int lead_ms = GENERATE(range(20, 32, 2));
  CAPTURE(lead_ms);
  Settled s;
  const auto call = [&](const std::vector<int32_t>& ranks) {
    std::vector<AnswerPtr> answers;
    for (const int32_t r : ranks)
      answers.push_back(s.cluster.allreduce(r, s.call, s.input));
    return answers;
  };
  // The caller of kLate stays away, and its link to rank 2 is slow. So rank 2 lacks a
  // result while the others are in the next operation. In that operation the shard of
  // kLate is divided into parts. Rank 2 gets these parts, but not the last bytes of the
  // shards of ranks 0 and 1.
  s.cluster.network.set_rate(Rank(kLate), Rank(2), 5'000);
  const std::vector<AnswerPtr> before = call({0, 1, 2});
  REQUIRE(s.cluster.run_until_done({before[0], before[1]}, milliseconds(500)));
  s.cluster.run_for(milliseconds(lead_ms));
  std::vector<AnswerPtr> answers = call({0, 1});
  REQUIRE(s.cluster.run_until_done(before, milliseconds(500)));
  const uint64_t seq = 22;
  s.cluster.network.set_tap(
      [&](Rank, Rank to, const transport::FrameHeader& h, TimePoint arrives) {
        const bool is_last = h.offset + h.payload_bytes == h.total_bytes;
        const bool is_delayed = to.value == 2 && h.seq == seq && h.shard < 2 &&
                                is_last && h.kind == transport::FrameKind::kResult;
        return is_delayed ? arrives + milliseconds(600) : arrives;
      });
  answers.push_back(s.cluster.allreduce(2, s.call, s.input));
  s.took(answers);
  s.cluster.network.set_tap({});
  CHECK((owns(s.cluster, 0) || owns(s.cluster, 1)));
}

TEST_CASE(
    "when an uplink turns bad the others wait for its rank once, not once per shard") {
  struct Row {
    uint64_t bytes_per_second;
    double most_ms;
  };
  // With the first rate the result header of its shard arrives, but not the shard. A
  // second wait in vain would exceed these limits.
  const Row row = GENERATE(Row{100'000, 72}, Row{5'000, 79});
  CAPTURE(row.bytes_per_second);
  Settled s;
  CHECK(s.took_by_others(s.call_all()) < 28);
  s.slow_uplink(row.bytes_per_second);
  const double first = s.took_by_others(s.call_all());
  CHECK_FALSE(owns(s.cluster, kLate));
  CHECK(first < row.most_ms);
}

TEST_CASE("an owner is not suspected because its caller is late") {
  // Its uplink still carries its contribution when the others close without it. So the
  // result of its shard comes after the other results. The last lag is longer than the
  // operation.
  const Duration lag = milliseconds(GENERATE(50, 90, 400));
  CAPTURE(to_ms(lag));
  Settled s(10, 1'000'000);  // a shard in 100 ms
  const uint32_t view = s.cluster.group(0).view().number;
  s.cluster.network.set_tap(
      [](Rank from, Rank, const transport::FrameHeader& h, TimePoint arrives) {
        const bool is_delayed =
            from.value == kLate && h.kind == transport::FrameKind::kResult;
        return is_delayed ? arrives + milliseconds(45) : arrives;
      });
  run_operation(s.cluster, s.call, lag);
  s.cluster.network.set_tap({});
  CHECK(s.cluster.group(0).view().number == view);
  CHECK(owns(s.cluster, kLate));
}

TEST_CASE("a result that will arrive soon is waited for") {
  // Moving the shard of kLate and sending all contributions again would end 330 ms
  // after the calls.
  struct Row {
    int lag_ms;
    uint64_t bytes_per_second;
  };
  const Row row = GENERATE(Row{0, 750'000}, Row{40, 600'000}, Row{240, 600'000});
  CAPTURE(row.lag_ms, row.bytes_per_second);
  Settled s(20, 1'000'000);
  s.slow_uplink(row.bytes_per_second);
  s.start = s.cluster.clock.now();
  std::vector<AnswerPtr> answers = call_all(s.cluster, s.call, {0, 1, 2});
  s.cluster.run_for(milliseconds(row.lag_ms));
  s.cluster.allreduce(kLate, s.call, s.input);
  CHECK(s.took(answers) < 300);
  s.cluster.run_for(milliseconds(5));
  CHECK(owns(s.cluster, kLate));
}

TEST_CASE(
    "a shard without a member shows that this member cannot have exposed its own "
    "shard") {
  Settled s;
  // Only the first owner, which changes the view, has the contribution of kLate.
  s.cluster.network.set_rate(Rank(kLate), Rank(0), 16'000'000);
  auto answers = s.call_all();
  s.cluster.run_for(milliseconds(9));
  s.slow_uplink(5'000);
  const double took = s.took_by_others(answers);
  CHECK_FALSE(owns(s.cluster, kLate));
  CHECK(took < 78);
  CHECK(answers[0]->outcome.shards[0].contributors == all_ranks(4));
  CHECK(answers[0]->outcome.skipped == std::vector<Rank>{Rank(kLate)});
}

TEST_CASE(
    "an owner whose result was too slow gets no time at the new owner of its shard") {
  Settled s;
  auto answers = s.call_all();
  s.cluster.run_for(milliseconds(15));  // all contributions have arrived
  s.slow_uplink(20'000);
  const double took = s.took_by_others(answers);
  CHECK_FALSE(owns(s.cluster, kLate));
  CHECK(answers[0]->outcome.shards[0].contributors == all_ranks(4));
  CHECK(answers[0]->outcome.skipped == std::vector<Rank>{Rank(kLate)});
  CHECK(took < 104);
}

TEST_CASE("members get a missing result from a member that has it and has gone on") {
  Settled s;
  // Neither the result of kLate nor its answers arrive at ranks 1 and 2.
  s.cluster.network.set_tap([](Rank from, Rank to, const transport::FrameHeader& h,
                               TimePoint arrives) {
    const bool is_slow =
        from.value == kLate && to.value > 0 && h.kind != transport::FrameKind::kContrib;
    return is_slow ? arrives + milliseconds(1000) : arrives;
  });
  const auto answers = s.call_all();
  REQUIRE(s.cluster.run_until_done({answers[0], answers[kLate]}, milliseconds(200)));
  for (const int32_t r : {0, kLate}) s.cluster.allreduce(r, s.call, s.input);
  CHECK(s.took({answers[1], answers[2]}) < 100);
  CHECK(answers[1]->outcome.shards[kLate].contributors == all_ranks(4));
  CHECK(answers[1]->output == answers[kLate]->output);
}

TEST_CASE("an uplink that turns bad costs half of the time that its rank has") {
  // In many frames, or in one frame that has arrived in part.
  const size_t chunk_bytes = GENERATE(size_t{16} << 10, size_t{256} << 10);
  CAPTURE(chunk_bytes);
  Settled s(20, 1'000'000'000, milliseconds(20), chunk_bytes);
  s.slow_uplink(2'000'000);  // a contribution in 50 ms
  const auto answers = s.call_all();
  // 12 ms for the contributions and half of the 20 ms, 3 ms for results, 8 ms for
  // another view.
  CHECK(s.took_by_others(answers) < 12 + 3 + 8);
  CHECK(answers[0]->outcome.skipped == std::vector<Rank>{Rank(kLate)});
}

TEST_CASE("members that own nothing find out which of two owners is slow") {
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

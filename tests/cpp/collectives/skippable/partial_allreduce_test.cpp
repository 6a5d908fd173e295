// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/partial_allreduce.h"

#include <random>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::OutcomeKind;
using std::chrono::microseconds;
using transport::FrameHeader;
using transport::FrameKind;

namespace {

Call skip_call(size_t count, ReduceOp op = ReduceOp::kSum) {
  Call call = allreduce_call(DType::kFloat32, count, op);
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.floor = milliseconds(20);
  call.policy.ceiling = milliseconds(100);
  return call;
}

std::vector<Bytes> inputs_of(int32_t size, const Call& call, uint64_t seed) {
  std::vector<Bytes> inputs;
  for (int32_t r = 0; r < size; ++r)
    inputs.push_back(
        random_elements(call.dtype, call.count, seed * 100 + static_cast<uint64_t>(r)));
  return inputs;
}

double scale_of(const Call& call, size_t contributors, int32_t size) {
  const double n = call.policy.divisor == straggler::Divisor::kWorld
                       ? static_cast<double>(size)
                       : static_cast<double>(contributors);
  return call.op == ReduceOp::kAvg ? 1.0 / n : static_cast<double>(size) / n;
}

// Empty if `output` is, shard by shard, the scaled fold of exactly those contributors
// that the outcome names.
std::string wrong_shard(const Call& call, const Cluster& cluster,
                        const std::vector<Bytes>& inputs, const Answer& answer) {
  const size_t element = size_of(call.dtype);
  uint64_t next = 0;
  for (size_t s = 0; s < answer.outcome.shards.size(); ++s) {
    const auto& shard = answer.outcome.shards[s];
    if (shard.first_element != next) return "where a shard begins";
    next += shard.num_elements;
    const double scale = scale_of(call, shard.contributors.size(), cluster.size());
    if (shard.scale != scale) return "scale";
    const Bytes expected = folded(call, inputs, shard.contributors, scale);
    for (size_t i = shard.first_element * element; i < next * element; ++i)
      if (answer.output[i] != expected[i]) return concat("shard ", s, " byte ", i);
  }
  return next == call.count ? "" : "where the last shard ends";
}

bool is_same(const Answer& a, const Answer& b) {
  const auto& x = a.outcome.shards;
  const auto& y = b.outcome.shards;
  return a.output == b.output && a.outcome.kind == b.outcome.kind &&
         std::equal(x.begin(), x.end(), y.begin(), y.end(), [](auto& p, auto& q) {
           return p.contributors == q.contributors && p.scale == q.scale &&
                  p.first_element == q.first_element;
         });
}

using Ranks = std::vector<Rank>;

// Ranks 0 and 1 run an operation that rank 2 does not call. Rank 2 gets the result.
void skip_once(Cluster& cluster, const Call& call, const std::vector<Bytes>& inputs) {
  for (int32_t r = 0; r < 2; ++r)
    cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]);
  cluster.run_for(milliseconds(200));
  REQUIRE(cluster.group(2).own_state().known_up_to() == 1);
}

}  // namespace

TEST_CASE("without late members a partial allreduce equals the strict one") {
  for (int32_t n = 1; n <= 6; ++n) {
    for (const size_t count : {0u, 1u, 100u, 1000u}) {
      Cluster cluster({.size = n});
      cluster.set_all_delays(milliseconds(1));
      const Call call = skip_call(count);
      const auto inputs = inputs_of(n, call, count);
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < n; ++r)
        answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
      REQUIRE(cluster.run_until_done(answers, milliseconds(3)));
      for (const auto& a : answers) {
        REQUIRE(a->is_ok());
        REQUIRE(a->outcome.kind == OutcomeKind::kComplete);
        REQUIRE(a->outcome.contributors == all_ranks(n));
        REQUIRE(a->outcome.skipped.empty());
        REQUIRE(a->output == folded(call, inputs, all_ranks(n), 1.0));
      }
    }
  }
}

TEST_CASE("a partial allreduce may have one owner, with the same sum") {
  for (const bool has_one_owner : {false, true}) {
    Cluster cluster({.size = 4});
    cluster.set_all_delays(milliseconds(1));
    Call call = skip_call(1000);
    if (has_one_owner) call.algorithm = Algorithm::kOneOwner;
    REQUIRE(validate(call, 4).is_ok());
    const auto inputs = inputs_of(4, call, 1);
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 3; ++r)
      answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
    REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
    for (const auto& a : answers) {
      REQUIRE(a->outcome.shards.size() == (has_one_owner ? 1 : 4));
      REQUIRE(a->outcome.skipped == Ranks{Rank(3)});
      REQUIRE(wrong_shard(call, cluster, inputs, *a).empty());
    }
  }
}

TEST_CASE("a caller may take the memory of a result, and its input does not change") {
  for (const size_t count : {0u, 10u, 1000u}) {
    Cluster cluster({.size = 4});
    cluster.takes_results = true;
    cluster.set_all_delays(milliseconds(1));
    const Call call = skip_call(count);
    const auto inputs = inputs_of(4, call, 1);
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 3; ++r)
      answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
    REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
    answers.push_back(cluster.allreduce(3, call, inputs[3]));
    REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
    for (size_t r = 0; r < 4; ++r) {
      REQUIRE(answers[r]->outcome.skipped == Ranks{Rank(3)});
      REQUIRE(wrong_shard(call, cluster, inputs, *answers[r]).empty());
      REQUIRE(answers[r]->given == inputs[r]);
    }
  }
}

TEST_CASE("a late member is skipped, and gets the same result at once when it calls") {
  // A small bucket has one owner. In a large one the late member owns a shard, which it
  // still serves.
  for (const size_t count : {10u, 1000u}) {
    for (int32_t late = 0; late < 4; ++late) {
      Cluster cluster({.size = 4});
      cluster.set_all_delays(milliseconds(1));
      const Call call = skip_call(count);
      const auto inputs = inputs_of(4, call, 1);
      std::vector<AnswerPtr> answers;
      const TimePoint begin = cluster.clock.now();
      for (int32_t r = 0; r < 4; ++r)
        if (r != late)
          answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
      REQUIRE(cluster.run_until_done(answers, milliseconds(200)));
      // Two hops, and the deadline of a member with unknown lags.
      CHECK(cluster.clock.now() - begin <= milliseconds(103));
      CHECK(cluster.clock.now() - begin >= milliseconds(100));
      cluster.run_for(milliseconds(50));
      CHECK(cluster.group(late).own_state().known_up_to() == 1);

      answers.push_back(
          cluster.allreduce(late, call, inputs[static_cast<size_t>(late)]));
      REQUIRE(answers.back()->is_done());  // no time has passed
      CHECK(answers.back()->outcome.was_committed);
      CHECK(cluster.group(late).counters().skipped_own == 1);
      for (const auto& a : answers) {
        REQUIRE(a->is_ok());
        REQUIRE(a->outcome.kind == OutcomeKind::kPartial);
        REQUIRE(a->outcome.skipped == Ranks{Rank(late)});
        REQUIRE(a->outcome.contributors.size() == 3);
        REQUIRE(wrong_shard(call, cluster, inputs, *a).empty());
        REQUIRE(is_same(*a, *answers.front()));
      }
      cluster.run_idle();
      // The late member did not send data that no member needs.
      for (int32_t r = 0; r < 4; ++r)
        CHECK(cluster.group(r).counters().stale_frames == 0);
      for (const auto& a : answers) {
        CHECK(a->memory_is_free);
        CHECK(a->memory_is_untouched());
      }
    }
  }
}

TEST_CASE("a late caller gets at once a result that no other member has received") {
  Cluster cluster({.size = 3, .min_shard_bytes = 1 << 20});  // rank 0 owns it
  cluster.set_all_delays(milliseconds(1));
  const Call call = skip_call(10);
  const auto inputs = inputs_of(3, call, 1);
  skip_once(cluster, call, inputs);
  const TimePoint begin = cluster.clock.now();
  cluster.network.set_tap(
      [&](Rank from, Rank to, const FrameHeader& header, TimePoint at) {
        const bool is_slow =
            from == Rank(0) && to == Rank(1) && header.kind == FrameKind::kResult;
        return is_slow ? begin + std::chrono::seconds(5) : at;
      });
  auto first = cluster.allreduce(0, call, inputs[0]);
  cluster.allreduce(1, call, inputs[1]);
  cluster.run_for(milliseconds(120));
  REQUIRE_FALSE(first->is_done());        // closed without rank 2, not acknowledged
  cluster.allreduce(2, call, inputs[2]);  // the operation that it has missed
  auto late = cluster.allreduce(2, call, inputs[2]);
  cluster.run_for(milliseconds(3));
  CHECK(late->is_ok());
  CHECK(late->outcome.skipped == Ranks{Rank(2)});
  CHECK(first->is_ok());
}

TEST_CASE("a call that has failed sends no result to a late member") {
  Cluster cluster({.size = 3, .min_shard_bytes = 1 << 20});  // rank 0 owns it
  const Call call = skip_call(10);
  const auto inputs = inputs_of(3, call, 1);
  skip_once(cluster, call, inputs);
  int num_sent = 0, num_late = 0;
  cluster.network.set_tap([&](Rank, Rank to, const FrameHeader& header, TimePoint at) {
    if (header.kind == FrameKind::kResult && header.payload_bytes > 0)
      ++(to == Rank(2) ? num_late : num_sent);
    return at;
  });
  cluster.network.stall(Rank(0), Rank(1), cluster.clock.now() + milliseconds(200));
  const auto first = cluster.allreduce(0, call, inputs[0], milliseconds(150));
  cluster.allreduce(1, call, inputs[1]);
  cluster.run_for(milliseconds(160));
  REQUIRE(first->is_done());  // closed without rank 2, not acknowledged
  CHECK_FALSE(first->is_ok());
  cluster.run_for(milliseconds(1000));
  CHECK(num_sent == 1);
  CHECK(num_late == 0);
}

TEST_CASE(
    "an owner that has stood still reads its messages before it exposes a full "
    "result") {
  // The process stands still in a turn, or before it. In the second case other links
  // may hold messages of that time.
  for (const auto& [turn, unread] : {std::pair{milliseconds(0), milliseconds(0)},
                                     {milliseconds(700), milliseconds(0)},
                                     {milliseconds(0), milliseconds(700)}}) {
    const bool is_long = turn + unread > milliseconds(0);
    Cluster cluster({.size = 3});
    Call call = skip_call(10);
    call.algorithm = Algorithm::kOneOwner;
    const auto inputs = inputs_of(3, call, 1);
    cluster.allreduce(1, call, inputs[1]);
    cluster.allreduce(2, call, inputs[2]);
    cluster.turn();
    // The process stands still. Meanwhile the others might have made a view without it.
    cluster.clock.set_turn(turn);
    cluster.clock.set_unread(unread);
    const auto answer = cluster.allreduce(0, call, inputs[0]);
    cluster.network.pump();
    CHECK(answer->is_done() == !is_long);
    cluster.clock.set_turn({});
    cluster.clock.set_unread({});
    cluster.turn();
    CHECK(answer->is_ok());
    CHECK(answer->outcome.kind == OutcomeKind::kComplete);
  }
}

TEST_CASE("the divisor is the number of contributors, or the world size") {
  const auto result = [](ReduceOp op, straggler::Divisor divisor) {
    Cluster cluster({.size = 4});
    Call call = skip_call(1, op);
    call.policy.divisor = divisor;
    const float one = 12;
    Bytes input(sizeof one);
    std::memcpy(input.data(), &one, sizeof one);
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 3; ++r)
      answers.push_back(cluster.allreduce(r, call, input));
    CHECK(cluster.run_until_done(answers, milliseconds(200)));
    return element<float>(answers[0]->output.data(), 0);
  };
  CHECK(result(ReduceOp::kSum, straggler::Divisor::kContributors) == 48);
  CHECK(result(ReduceOp::kAvg, straggler::Divisor::kContributors) == 12);
  CHECK(result(ReduceOp::kSum, straggler::Divisor::kWorld) == 36);
  CHECK(result(ReduceOp::kAvg, straggler::Divisor::kWorld) == 9);
}

TEST_CASE(
    "the send of a member on a slow link is cancelled, and sends no stale bytes") {
  Cluster cluster({.size = 3});
  const Call call = skip_call(30'000);
  const auto inputs = inputs_of(3, call, 1);
  // Its 40,000 bytes to each owner take 800 ms. All other links take no time.
  cluster.network.set_rate(Rank(2), Rank(0), 50'000);
  cluster.network.set_rate(Rank(2), Rank(1), 50'000);
  std::vector<AnswerPtr> answers;
  const TimePoint begin = cluster.clock.now();
  for (int32_t r = 0; r < 3; ++r)
    answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
  REQUIRE(cluster.run_until_done(answers, milliseconds(2000)));
  const auto& slow = answers[2]->outcome;
  CHECK(slow.skipped == Ranks{Rank(2)});
  CHECK(slow.cancelled_bytes > 60'000);
  CHECK(cluster.group(2).counters().cancelled_bytes >= slow.cancelled_bytes);
  // No member waited for its shard either: the shard went to another member.
  for (const auto& shard : slow.shards) {
    CHECK(shard.contributors.size() == 2);
    CHECK(shard.owner != Rank(2));
  }
  for (const auto& a : answers) {
    CHECK(wrong_shard(call, cluster, inputs, *a).empty());
    CHECK(is_same(*a, *answers[0]));
  }
  // The deadlines of a contribution, of an owner, and of the new owner.
  for (const auto& a : answers) CHECK(a->at - begin < milliseconds(420));
  cluster.run_idle();
  // The link carries 40,000 bytes of its own result in chunks of 256 + 64 bytes, and no
  // stale bytes.
  CHECK(cluster.clock.now() - begin < milliseconds(1200));
  for (const auto& a : answers) {
    CHECK(a->memory_is_free);
    CHECK(a->memory_is_untouched());
  }
}

TEST_CASE("a contribution that is half received at the close is dropped") {
  // The first of two chunks is on its way to the owner when the shard closes. A second
  // operation takes memory of the pool at that moment.
  Cluster cluster({.size = 3, .chunk_bytes = 4096, .min_shard_bytes = 1 << 20});
  const Call call = skip_call(2048);
  const auto inputs = inputs_of(3, call, 5);
  for (int32_t r = 0; r < 3; ++r)
    for (int32_t to = 0; to < 3; ++to)
      if (r == 2 && to != r) cluster.network.set_rate(Rank(r), Rank(to), 8'000);
  std::vector<AnswerPtr> answers;
  for (int op = 0; op < 4; ++op)
    for (int32_t r = 0; r < 3; ++r)
      answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
  REQUIRE(cluster.run_until_done(answers, milliseconds(60'000)));
  cluster.run_idle();
  for (const auto& a : answers) {
    REQUIRE(a->is_ok());
    CHECK(wrong_shard(call, cluster, inputs, *a).empty());
  }
}

TEST_CASE(
    "a member knows how many operations it has missed, and gets their results in "
    "order") {
  Cluster cluster({.size = 3});
  const Call call = skip_call(100);
  std::vector<std::vector<Bytes>> inputs;
  std::vector<AnswerPtr> answers;
  for (uint64_t op = 0; op < 5; ++op) {
    inputs.push_back(inputs_of(3, call, op));
    const TimePoint begin = cluster.clock.now();
    std::vector<AnswerPtr> now;
    for (int32_t r = 0; r < 2; ++r)
      now.push_back(cluster.allreduce(r, call, inputs.back()[static_cast<size_t>(r)]));
    REQUIRE(cluster.run_until_done(now, milliseconds(300)));
    // From the second operation on, rank 2 is known to be behind and is not waited for.
    if (op > 0) CHECK(cluster.clock.now() == begin);
    cluster.run_idle();
    CHECK(cluster.group(2).own_state().known_up_to() == op + 1);
    answers.insert(answers.end(), now.begin(), now.end());
  }
  for (size_t op = 0; op < 5; ++op) {
    const auto late = cluster.allreduce(2, call, inputs[op][2]);
    REQUIRE(late->is_ok());
    CHECK(late->outcome.was_committed);
    CHECK(is_same(*late, *answers[2 * op]));
    CHECK(cluster.group(2).own_state().known_up_to() == 5);
  }
  // All members learn that rank 2 is back, and wait for it again.
  cluster.run_idle();
  const auto again = inputs_of(3, call, 99);
  std::vector<AnswerPtr> last;
  for (int32_t r = 0; r < 2; ++r)
    last.push_back(cluster.allreduce(r, call, again[static_cast<size_t>(r)]));
  cluster.run_for(milliseconds(10));
  for (const auto& a : last) CHECK_FALSE(a->is_done());
  last.push_back(cluster.allreduce(2, call, again[2]));
  REQUIRE(cluster.run_until_done(last, milliseconds(1)));
  CHECK(last[0]->outcome.kind == OutcomeKind::kComplete);
}

TEST_CASE("a full log makes the other members wait") {
  Cluster cluster({.size = 3, .log_bytes = 2900});
  const Call call = skip_call(100);  // 400 bytes, and 1024 for the operation
  const auto inputs = inputs_of(3, call, 1);
  std::vector<AnswerPtr> answers;
  for (int op = 0; op < 3; ++op) {
    for (int32_t r = 0; r < 2; ++r)
      answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
    cluster.run_for(milliseconds(500));
  }
  for (size_t i = 0; i < 6; ++i) CHECK(answers[i]->is_done() == (i < 4));
  for (int op = 0; op < 3; ++op)
    answers.push_back(cluster.allreduce(2, call, inputs[2]));
  REQUIRE(cluster.run_until_done(answers, milliseconds(10)));
  for (const auto& a : answers) CHECK(a->is_ok());
  CHECK(answers[4]->outcome.kind == OutcomeKind::kComplete);
}

TEST_CASE("fewer than min_contributors cannot close a shard") {
  Cluster cluster({.size = 4});
  Call call = skip_call(200);
  call.policy.min_contributors = 3;
  const auto inputs = inputs_of(4, call, 1);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 2; ++r)
    answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
  cluster.run_for(milliseconds(3000));
  for (const auto& a : answers) CHECK_FALSE(a->is_done());
  answers.push_back(cluster.allreduce(2, call, inputs[2]));
  REQUIRE(cluster.run_until_done(answers, milliseconds(101)));
  for (const auto& a : answers) CHECK(a->outcome.skipped == Ranks{Rank(3)});
}

TEST_CASE("a member is waited for after max_consecutive_skips") {
  Cluster cluster({.size = 3});
  Call call = skip_call(10);
  call.policy.max_consecutive_skips = 2;
  const auto inputs = inputs_of(3, call, 1);
  std::vector<AnswerPtr> answers;
  for (int op = 0; op < 3; ++op) {
    for (int32_t r = 0; r < 2; ++r)
      answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
    cluster.run_for(milliseconds(500));
  }
  for (size_t i = 0; i < 6; ++i) CHECK(answers[i]->is_done() == (i < 4));
  for (int op = 0; op < 3; ++op) cluster.allreduce(2, call, inputs[2]);
  REQUIRE(cluster.run_until_done(answers, milliseconds(10)));
}

TEST_CASE("a member that has called is not behind, also if it is the owner") {
  // Rank 0, the owner, is late in an operation and then calls. In the next operations
  // the others wait for it again.
  Cluster cluster({.size = 3, .min_shard_bytes = 1 << 20});
  const Call call = skip_call(10);
  const auto inputs = inputs_of(3, call, 1);
  std::vector<AnswerPtr> first, second, third;
  for (int32_t r = 1; r < 3; ++r)
    first.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
  REQUIRE(cluster.run_until_done(first, milliseconds(200)));
  first.push_back(cluster.allreduce(0, call, inputs[0]));
  for (int32_t r = 0; r < 3; ++r)
    second.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
  REQUIRE(cluster.run_until_done(second, milliseconds(1)));
  for (int32_t r = 1; r < 3; ++r)
    third.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
  cluster.run_for(milliseconds(10));
  for (const auto& a : third) CHECK_FALSE(a->is_done());
}

// ---- random schedules ----

namespace {

using Answers = std::vector<std::vector<AnswerPtr>>;  // by rank, by operation

// Checks each guarantee of an allreduce on the answers. Returns the first violation.
std::string broken_promise(const std::vector<Call>& calls, Cluster& cluster,
                           const std::vector<std::vector<Bytes>>& inputs,
                           const Answers& answers) {
  // A member that the others have excluded ends with an error, and may have seen other
  // results just before (tests/cpp/sim has the rule).
  const membership::View* newest = &cluster.group(0).view();
  for (int32_t r = 1; r < cluster.size(); ++r)
    if (cluster.group(r).view().number > newest->number)
      newest = &cluster.group(r).view();
  size_t first = 0;
  while (!newest->has(Rank(static_cast<int32_t>(first)))) ++first;
  for (size_t op = 0; op < calls.size(); ++op) {
    for (size_t r = 0; r < answers.size(); ++r) {
      if (!newest->has(Rank(static_cast<int32_t>(r)))) continue;
      if (answers[r].size() <= op) return concat("rank ", r, " did not call ", op);
      const Answer& a = *answers[r][op];
      const std::string where = concat("operation ", op + 1, " on rank ", r, ": ");
      if (a.times != 1) return where + concat(a.times, " answers");
      if (!a.status.is_ok()) return where + a.status.message();
      if (!is_same(a, *answers[first][op])) return where + "not the same result";
      const auto wrong = wrong_shard(calls[op], cluster, inputs[op], a);
      if (!wrong.empty()) return where + wrong;
      for (const auto& shard : a.outcome.shards)
        if (static_cast<int32_t>(shard.contributors.size()) <
            straggler::fewest_of(calls[op].policy, cluster.size()))
          return where + "closed without a quorum";
      if (!a.memory_is_free) return where + "memory is kept";
      if (!a.memory_is_untouched()) return where + "memory was written to afterwards";
    }
  }
  return {};
}

// Runs a schedule with random delays, rates and lateness. Returns the first violation.
std::string run_schedule(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  ClusterOptions options;
  options.size = static_cast<int32_t>(2 + below(5));
  options.chunk_bytes = 64 + below(400);
  options.min_shard_bytes = below(3) == 0 ? 1 << 20 : 64;
  if (below(4) == 0) options.log_bytes = 4000;
  Cluster cluster(options);
  const auto n = static_cast<size_t>(options.size);
  for (int32_t a = 0; a < options.size; ++a) {
    for (int32_t b = 0; b < options.size; ++b) {
      if (a == b) continue;
      cluster.network.set_delay(Rank(a), Rank(b), microseconds(below(3000)));
      if (below(3) == 0)
        cluster.network.set_rate(Rank(a), Rank(b), 5'000 + below(200'000));
      if (below(6) == 0)
        cluster.network.stall(Rank(a), Rank(b),
                              cluster.clock.now() + milliseconds(below(300)));
    }
  }
  Call call = skip_call(0, below(2) == 0 ? ReduceOp::kSum : ReduceOp::kAvg);
  call.policy.ceiling = milliseconds(20 + below(60));
  call.policy.min_contributors =
      static_cast<int32_t>(below(static_cast<uint64_t>(options.size) + 1));
  call.policy.max_consecutive_skips = static_cast<uint32_t>(1 + below(5));
  call.policy.warmup_operations = static_cast<uint32_t>(1 + below(4));
  if (below(3) == 0) call.policy.divisor = straggler::Divisor::kWorld;

  const size_t num_operations = 1 + below(6);
  const bool overlaps = below(2) == 0;
  std::vector<Call> calls;
  std::vector<std::vector<Bytes>> inputs;
  for (size_t op = 0; op < num_operations; ++op) {
    call.count = below(4) == 0 ? below(8) : below(600);
    calls.push_back(call);
    inputs.push_back(inputs_of(options.size, call, seed * 31 + op));
  }
  std::vector<size_t> next(n);
  std::vector<TimePoint> due(n, cluster.clock.now());
  Answers answers(n);
  const TimePoint limit = cluster.clock.now() + milliseconds(100'000);
  while (cluster.clock.now() < limit) {
    size_t who = n;
    for (size_t r = 0; r < n; ++r) {
      if (next[r] == num_operations) continue;
      // Without overlap a member waits for its answer before it calls again.
      if (!overlaps && !answers[r].empty() && !answers[r].back()->is_done()) continue;
      if (who == n || due[r] < due[who]) who = r;
    }
    if (who == n) {
      const auto is_done = [](const AnswerPtr& a) { return a->is_done(); };
      bool is_over = true;
      for (size_t r = 0; r < n; ++r)
        is_over = is_over && next[r] == num_operations &&
                  std::all_of(answers[r].begin(), answers[r].end(), is_done);
      if (is_over) break;
      cluster.run_for(milliseconds(1));
      continue;
    }
    if (due[who] > cluster.clock.now()) {
      cluster.run_until(std::min(due[who], cluster.clock.now() + milliseconds(5)));
      continue;
    }
    const size_t op = next[who]++;
    answers[who].push_back(cluster.allreduce(
        static_cast<int32_t>(who), calls[op], inputs[op][who], milliseconds(90'000),
        below(2) == 0, static_cast<Priority>(below(3))));
    const bool is_late = below(5) == 0;
    due[who] =
        cluster.clock.now() + microseconds(is_late ? below(200'000) : below(4'000));
  }
  cluster.run_idle();
  return broken_promise(calls, cluster, inputs, answers);
}

}  // namespace

TEST_CASE(
    "in random schedules all members expose one mask and its fold, and each call "
    "ends") {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    INFO("seed " << seed);
    REQUIRE(run_schedule(seed) == "");
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/partial_reduce_scatter.h"

#include <random>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::OutcomeKind;
using std::chrono::microseconds;

namespace {

using Ranks = std::vector<Rank>;
// By rank: the blocks that it gives to each rank.
using Inputs = std::vector<std::vector<Bytes>>;

Call scatter_call(int32_t size, size_t count, ReduceOp op = ReduceOp::kSum) {
  Call call = allreduce_call(DType::kFloat32, count * static_cast<size_t>(size), op);
  call.kind = CallKind::kReduceScatter;
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.floor = milliseconds(20);
  call.policy.ceiling = milliseconds(100);
  return call;
}

Inputs inputs_of(int32_t size, const Call& call, uint64_t seed) {
  const size_t count = call.count / static_cast<size_t>(size);
  Inputs inputs;
  for (int32_t r = 0; r < size; ++r) {
    inputs.emplace_back();
    for (int32_t to = 0; to < size; ++to)
      inputs.back().push_back(random_elements(
          call.dtype, count, seed * 1000 + static_cast<uint64_t>(32 * r + to)));
  }
  return inputs;
}

// The fold of the block of `rank`.
Bytes expected(const Call& call, const Inputs& inputs, int32_t rank,
               const Ranks& contributors) {
  std::vector<Bytes> blocks;
  for (const auto& of_rank : inputs)
    blocks.push_back(of_rank[static_cast<size_t>(rank)]);
  Call one = call;
  one.count = blocks.front().size() / size_of(call.dtype);
  return folded(one, blocks, contributors,
                collectives::scale_of(call, static_cast<int32_t>(contributors.size()),
                                      static_cast<int32_t>(inputs.size())));
}

// The entry of the block of `rank`, which is the first entry with this owner.
const collectives::ShardOutcome* own_shard(const Answer& answer, int32_t rank) {
  for (const auto& shard : answer.outcome.shards)
    if (shard.owner == Rank(rank)) return &shard;
  return nullptr;
}

// The error in the answer of a call that should end well; empty: none.
std::string wrong(const Call& call, const Inputs& inputs, int32_t rank,
                  const Answer& answer) {
  if (answer.times != 1) return concat(answer.times, " answers");
  if (!answer.status.is_ok()) return answer.status.message();
  const auto* own = own_shard(answer, rank);
  if (own == nullptr) return "nothing about its own block";
  const Ranks& in = own->contributors;
  if (std::find(in.begin(), in.end(), Rank(rank)) == in.end())
    return "it is not in its own block";
  const auto n = static_cast<int32_t>(inputs.size());
  if (static_cast<int32_t>(in.size()) < straggler::fewest_of(call.policy, n))
    return "closed without a quorum";
  if (answer.output != expected(call, inputs, rank, in)) return "not its fold";
  for (const auto& shard : answer.outcome.shards) {
    const auto& theirs = shard.contributors;
    if (shard.owner != Rank(rank) &&
        std::find(theirs.begin(), theirs.end(), Rank(rank)) != theirs.end())
      return "an entry of a block that it is in";
  }
  if (answer.outcome.skipped_by.size() + 1 != answer.outcome.shards.size())
    return "skipped_by is not what the shards say";
  if (!answer.memory_is_free) return "memory is kept";
  if (!answer.memory_is_untouched()) return "memory was written to afterwards";
  return {};
}

AnswerPtr call_on(Cluster& cluster, int32_t rank, const Call& call,
                  const Inputs& inputs, bool in_place = false) {
  return cluster.reduce_scatter(rank, call, inputs[static_cast<size_t>(rank)],
                                milliseconds(10'000), in_place);
}

}  // namespace

TEST_CASE("without late members a partial reduce_scatter equals the strict one") {
  for (int32_t n = 1; n <= 6; ++n) {
    for (const size_t count : {0u, 1u, 100u, 1000u}) {
      for (const bool in_place : {false, true}) {
        Cluster cluster({.size = n});
        cluster.set_all_delays(milliseconds(1));
        const Call call = scatter_call(n, count);
        const Inputs inputs = inputs_of(n, call, count);
        std::vector<AnswerPtr> answers;
        for (int32_t r = 0; r < n; ++r)
          answers.push_back(call_on(cluster, r, call, inputs, in_place));
        REQUIRE(cluster.run_until_done(answers, milliseconds(2)));
        for (int32_t r = 0; r < n; ++r) {
          const Answer& a = *answers[static_cast<size_t>(r)];
          REQUIRE(wrong(call, inputs, r, a) == "");
          REQUIRE(a.outcome.kind == OutcomeKind::kComplete);
          REQUIRE(a.outcome.contributors == all_ranks(n));
          REQUIRE(a.outcome.reason == "complete");
          REQUIRE(a.output == expected(call, inputs, r, all_ranks(n)));
        }
        cluster.run_idle();
        for (int32_t r = 0; r < n; ++r)
          CHECK(cluster.group(r).counters().cancelled_bytes == 0);
      }
    }
  }
}

TEST_CASE("all members skip a late member, which gets its own block at once") {
  for (int32_t late = 0; late < 4; ++late) {
    Cluster cluster({.size = 4});
    cluster.set_all_delays(milliseconds(1));
    const Call call = scatter_call(4, 300);
    const Inputs inputs = inputs_of(4, call, 1);
    std::vector<AnswerPtr> answers(4);
    std::vector<AnswerPtr> others;
    const TimePoint begin = cluster.clock.now();
    for (int32_t r = 0; r < 4; ++r) {
      if (r == late) continue;
      answers[static_cast<size_t>(r)] = call_on(cluster, r, call, inputs);
      others.push_back(answers[static_cast<size_t>(r)]);
    }
    REQUIRE(cluster.run_until_done(others, milliseconds(200)));
    // One hop, and the deadline of a member with unknown lags.
    CHECK(cluster.clock.now() - begin == milliseconds(101));
    cluster.run_for(milliseconds(50));
    const auto own = call_on(cluster, late, call, inputs);
    answers[static_cast<size_t>(late)] = own;
    REQUIRE(own->is_done());  // no time has passed
    for (int32_t r = 0; r < 4; ++r) {
      const Answer& a = *answers[static_cast<size_t>(r)];
      REQUIRE(wrong(call, inputs, r, a) == "");
      CHECK(a.outcome.kind == OutcomeKind::kPartial);
      CHECK(a.outcome.skipped == Ranks{Rank(late)});
      CHECK(own_shard(a, r)->contributors.size() == (r == late ? 4u : 3u));
      CHECK(a.outcome.reason == "deadline");
      CHECK(a.outcome.skipped_by.size() == (r == late ? 3u : 0u));
      CHECK(cluster.group(r).counters().skipped_own == (r == late ? 1 : 0));
    }
    cluster.run_idle();
    // The late member did not send data that no member needs.
    for (int32_t r = 0; r < 4; ++r)
      CHECK(cluster.group(r).counters().stale_frames == 0);
  }
}

TEST_CASE("masks differ between ranks, and each rank knows the mask of its own block") {
  // The link from 0 to 1 is slow: rank 1 goes on without rank 0, and all others have
  // its data.
  Cluster cluster({.size = 4});
  const Call call = scatter_call(4, 2000);
  const Inputs inputs = inputs_of(4, call, 2);
  cluster.network.set_rate(Rank(0), Rank(1), 10'000);
  std::vector<AnswerPtr> answers;
  // In place: data that is folded ahead must not overwrite the own input.
  for (int32_t r = 0; r < 4; ++r)
    answers.push_back(call_on(cluster, r, call, inputs, true));
  REQUIRE(cluster.run_until_done(answers, milliseconds(101)));
  cluster.run_idle();
  for (int32_t r = 0; r < 4; ++r) {
    INFO("rank " << r);
    REQUIRE(wrong(call, inputs, r, *answers[static_cast<size_t>(r)]) == "");
    const bool is_short = r == 1;
    CHECK(own_shard(*answers[static_cast<size_t>(r)], r)->contributors.size() ==
          (is_short ? 3u : 4u));
  }
  // Rank 0 did not wait for this news, and its stale bytes were cancelled when the news
  // came.
  CHECK(answers[0]->at - TimePoint{} < milliseconds(20));
  CHECK(answers[0]->outcome.kind == OutcomeKind::kComplete);
  CHECK(cluster.group(0).counters().cancelled_bytes > 6000);
}

TEST_CASE("a slow receiver delays no other member, and still gets its data") {
  // Its links carry 8,000 bytes per second each. The callers have their input back long
  // before.
  Cluster cluster({.size = 3});
  Call call = scatter_call(3, 1000);
  call.policy.ceiling = call.policy.floor = milliseconds(5000);
  const Inputs inputs = inputs_of(3, call, 3);
  cluster.network.set_rate(Rank(0), Rank(2), 8'000);
  cluster.network.set_rate(Rank(1), Rank(2), 8'000);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 3; ++r) answers.push_back(call_on(cluster, r, call, inputs));
  REQUIRE(cluster.run_until_done({answers[0], answers[1]}, milliseconds(1)));
  cluster.run_for(milliseconds(10));
  CHECK(answers[0]->memory_is_free);
  REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
  cluster.run_idle();
  for (int32_t r = 0; r < 3; ++r) {
    REQUIRE(wrong(call, inputs, r, *answers[static_cast<size_t>(r)]) == "");
    CHECK(answers[static_cast<size_t>(r)]->outcome.kind == OutcomeKind::kComplete);
    CHECK(cluster.group(r).counters().cancelled_bytes == 0);
  }
}

TEST_CASE("a contribution that comes too slowly is waited for half as long") {
  // In many frames, or in one frame that has arrived in part.
  const size_t chunk_bytes = GENERATE(size_t{16} << 10, size_t{256} << 10);
  CAPTURE(chunk_bytes);
  Cluster cluster({.size = 4, .chunk_bytes = chunk_bytes});
  cluster.set_all_delays(milliseconds(1));
  const Call call = scatter_call(4, 25'000);
  const Inputs inputs = inputs_of(4, call, 1);
  for (const bool is_slow : {false, true}) {
    for (int32_t r = 0; is_slow && r < 3; ++r)
      cluster.network.set_rate(Rank(3), Rank(r), 2'000'000);  // a contribution in 50 ms
    for (int op = 0; op < (is_slow ? 1 : 20); ++op) {
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < 4; ++r)
        answers.push_back(call_on(cluster, r, call, inputs));
      const TimePoint start = cluster.clock.now();
      answers.pop_back();
      REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
      const double took = to_ms(cluster.clock.now() - start);
      CHECK(took < (is_slow ? 12 : 2));
      CHECK(took > (is_slow ? 10 : 0));
      cluster.run_idle();
    }
  }
}

TEST_CASE("the log bounds the data that is kept for a member that does not call") {
  // 1200 bytes, and 1024 for the operation: two operations fit.
  Cluster cluster({.size = 3, .window_bytes = 2000, .log_bytes = 5000});
  const Call call = scatter_call(3, 100);
  const Inputs inputs = inputs_of(3, call, 4);
  std::vector<std::vector<AnswerPtr>> answers(3);
  for (int op = 0; op < 3; ++op) {
    for (size_t r = 0; r < 2; ++r)
      answers[r].push_back(call_on(cluster, static_cast<int32_t>(r), call, inputs));
    cluster.run_for(milliseconds(500));
  }
  for (size_t r = 0; r < 2; ++r)
    for (size_t op = 0; op < 3; ++op) CHECK(answers[r][op]->is_done() == (op < 2));
  for (size_t op = 0; op < 3; ++op) {
    answers[2].push_back(call_on(cluster, 2, call, inputs));
    cluster.run_for(milliseconds(10));
    // Data in the windows comes from memory that its sender got back long ago.
    REQUIRE(wrong(call, inputs, 2, *answers[2][op]) == "");
    CHECK(own_shard(*answers[2][op], 2)->contributors.size() == 3);
  }
  cluster.run_idle();
  for (size_t r = 0; r < 2; ++r)
    for (size_t op = 0; op < 3; ++op)
      CHECK(wrong(call, inputs, static_cast<int32_t>(r), *answers[r][op]) == "");
}

TEST_CASE("a member is waited for after max_consecutive_skips reduce_scatters") {
  Cluster cluster({.size = 3});
  Call call = scatter_call(3, 10);
  call.policy.max_consecutive_skips = 2;
  const Inputs inputs = inputs_of(3, call, 1);
  std::vector<AnswerPtr> answers;
  for (int op = 0; op < 3; ++op) {
    for (int32_t r = 0; r < 2; ++r)
      answers.push_back(call_on(cluster, r, call, inputs));
    cluster.run_for(milliseconds(500));
  }
  for (size_t i = 0; i < 6; ++i) CHECK(answers[i]->is_done() == (i < 4));
  for (int op = 0; op < 3; ++op) answers.push_back(call_on(cluster, 2, call, inputs));
  REQUIRE(cluster.run_until_done(answers, milliseconds(10)));
}

TEST_CASE("after a death the others go on while min_contributors are left") {
  Cluster cluster({.size = 4});
  cluster.set_all_delays(milliseconds(1));
  Call call = scatter_call(4, 200);
  call.policy.min_contributors = 3;
  const Inputs inputs = inputs_of(4, call, 5);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 3; ++r) answers.push_back(call_on(cluster, r, call, inputs));
  cluster.run_for(milliseconds(5));
  cluster.kill(3);
  // No member waits for the deadline of a dead member.
  REQUIRE(cluster.run_until_done(answers, milliseconds(20)));
  for (int32_t r = 0; r < 3; ++r) {
    REQUIRE(wrong(call, inputs, r, *answers[static_cast<size_t>(r)]) == "");
    CHECK(answers[static_cast<size_t>(r)]->outcome.skipped == Ranks{Rank(3)});
  }
  std::vector<AnswerPtr> more{call_on(cluster, 0, call, inputs),
                              call_on(cluster, 1, call, inputs)};
  cluster.run_for(milliseconds(5));
  cluster.kill(2);
  REQUIRE(cluster.run_until_done(more, milliseconds(1000)));
  for (const auto& a : more) {
    CHECK(a->status.code() == Code::kPeerLost);
    INFO(a->status.message());
    CHECK(a->status.message().find("only 2 of 4 members are left, fewer than "
                                   "min_contributors=3") != std::string::npos);
  }
}

TEST_CASE(
    "members that leave after their last call cost a member that is behind no data") {
  for (const bool has_called : {false, true}) {
    Cluster cluster({.size = 4});
    cluster.set_all_delays(milliseconds(1));
    Call call = scatter_call(4, 200);
    const Inputs inputs = inputs_of(4, call, 5);
    // Rank 2 waits for a piece from rank 3, or its own caller is late.
    if (has_called) cluster.network.set_delay(Rank(3), Rank(2), milliseconds(20));
    std::vector<AnswerPtr> answers;
    for (const int32_t r : {0, 1, 3})
      answers.push_back(call_on(cluster, r, call, inputs));
    if (has_called) answers.push_back(call_on(cluster, 2, call, inputs));
    REQUIRE(cluster.run_until_done({answers[0], answers[1], answers[2]},
                                   milliseconds(1000)));
    for (const int32_t r : {0, 1, 3}) {
      cluster.group(r).leave();
      cluster.run_for(milliseconds(2));
      cluster.group(r).close_links();
    }
    cluster.run_for(milliseconds(100));
    if (!has_called) answers.push_back(call_on(cluster, 2, call, inputs));
    REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
    INFO(answers[3]->status.message());
    REQUIRE(answers[3]->is_ok());
    CHECK(wrong(call, inputs, 2, *answers[3]) == "");
    const auto next = call_on(cluster, 2, call, inputs);
    REQUIRE(cluster.run_until_done({next}, milliseconds(2000)));
    CHECK(next->status.code() == Code::kPeerLost);
  }
}

TEST_CASE("a rejoined member learns that nobody has its block, and goes on") {
  ClusterOptions options{.size = 4};
  options.heartbeat = {milliseconds(10), milliseconds(50)};
  Cluster cluster(options);
  cluster.set_all_delays(milliseconds(1));
  const Call call = scatter_call(4, 50);
  const Inputs inputs = inputs_of(4, call, 6);
  std::vector<AnswerPtr> first;
  for (int32_t r = 0; r < 4; ++r) first.push_back(call_on(cluster, r, call, inputs));
  REQUIRE(cluster.run_until_done(first, milliseconds(10)));
  cluster.stop(3, milliseconds(800));
  cluster.run_for(milliseconds(400));
  std::vector<AnswerPtr> second;
  for (int32_t r = 0; r < 3; ++r) second.push_back(call_on(cluster, r, call, inputs));
  REQUIRE(cluster.run_until_done(second, milliseconds(10)));
  cluster.run_for(milliseconds(1000));
  REQUIRE(cluster.group(0).view().has(Rank(3)));
  const auto missed = call_on(cluster, 3, call, inputs);
  REQUIRE(missed->is_done());
  CHECK(missed->status.code() == Code::kAborted);
  CHECK(missed->status.message().find("the group went on without rank 3") !=
        std::string::npos);
  std::vector<AnswerPtr> third;
  for (int32_t r = 0; r < 4; ++r) third.push_back(call_on(cluster, r, call, inputs));
  REQUIRE(cluster.run_until_done(third, milliseconds(10)));
  for (int32_t r = 0; r < 4; ++r) {
    REQUIRE(wrong(call, inputs, r, *third[static_cast<size_t>(r)]) == "");
    CHECK(third[static_cast<size_t>(r)]->outcome.kind == OutcomeKind::kComplete);
  }
}

TEST_CASE("a member that is excluded during its call gets the same error") {
  ClusterOptions options{.size = 4};
  options.heartbeat = {milliseconds(10), milliseconds(50)};
  Cluster cluster(options);
  cluster.set_all_delays(milliseconds(1));
  const Call call = scatter_call(4, 50);
  const Inputs inputs = inputs_of(4, call, 7);
  std::vector<AnswerPtr> answers(4);
  answers[3] = call_on(cluster, 3, call, inputs);
  cluster.run_for(milliseconds(5));
  cluster.stop(3, milliseconds(800));
  cluster.run_for(milliseconds(400));
  for (int32_t r = 0; r < 3; ++r)
    answers[static_cast<size_t>(r)] = call_on(cluster, r, call, inputs);
  REQUIRE(
      cluster.run_until_done({answers[0], answers[1], answers[2]}, milliseconds(10)));
  CHECK(answers[0]->outcome.skipped == Ranks{Rank(3)});
  REQUIRE(cluster.run_until_done(answers, milliseconds(2000)));
  CHECK(answers[3]->status.code() == Code::kAborted);
  CHECK(answers[3]->memory_is_untouched());
  for (int32_t r = 0; r < 3; ++r)
    CHECK(wrong(call, inputs, r, *answers[static_cast<size_t>(r)]) == "");
}

TEST_CASE(
    "blocks may differ in size between ranks, but not between givers to one rank") {
  Cluster cluster({.size = 2});
  const Call call = scatter_call(2, 8);
  const auto block = [&](size_t count, uint64_t seed) {
    return random_elements(call.dtype, count, seed);
  };
  const Inputs inputs{{block(4, 1), block(12, 2)}, {block(4, 3), block(12, 4)}};
  std::vector<AnswerPtr> answers{call_on(cluster, 0, call, inputs),
                                 call_on(cluster, 1, call, inputs)};
  REQUIRE(cluster.run_until_done(answers, milliseconds(10)));
  for (int32_t r = 0; r < 2; ++r)
    REQUIRE(wrong(call, inputs, r, *answers[static_cast<size_t>(r)]) == "");
  const Inputs other{{block(4, 1), block(12, 2)}, {block(8, 3), block(8, 4)}};
  answers = {call_on(cluster, 0, call, other), call_on(cluster, 1, call, other)};
  REQUIRE(cluster.run_until_done(answers, milliseconds(10)));
  for (const auto& a : answers) {
    CHECK(a->status.code() == Code::kInvalidArgument);
    CHECK(a->status.message().find("use the same shape") != std::string::npos);
  }
}

TEST_CASE("ranks with different policies get an error that names both") {
  Cluster cluster({.size = 2});
  const Call call = scatter_call(2, 8);
  Call other = call;
  other.policy.slack = 3;
  const Inputs inputs = inputs_of(2, call, 1);
  std::vector<AnswerPtr> answers{call_on(cluster, 0, call, inputs),
                                 call_on(cluster, 1, other, inputs)};
  REQUIRE(cluster.run_until_done(answers, milliseconds(10)));
  for (const auto& a : answers) {
    CHECK(a->status.code() == Code::kInvalidArgument);
    CHECK(a->status.message().find("slack=3") != std::string::npos);
    CHECK(a->status.message().find("slack=1.5") != std::string::npos);
  }
}

// ---- random schedules ----

namespace {

class Schedule {
 public:
  explicit Schedule(uint64_t seed)
      : random_(seed), cluster_(options()), n_(static_cast<size_t>(cluster_.size())) {}

  // Returns the first violation.
  std::string run() {
    disturb();
    choose_call();
    const size_t num_operations = 1 + below(6);
    for (size_t op = 0; op < num_operations; ++op) {
      call_.count = n_ * (below(4) == 0 ? below(8) : below(300));
      calls_.push_back(call_);
      inputs_.push_back(inputs_of(cluster_.size(), call_, op));
    }
    answers_.resize(n_);
    const bool overlaps = below(2) == 0;
    for (size_t r = 0; r < n_; ++r) due_.push_back(cluster_.clock.now());
    for (int step = 0; step < 100'000 && !is_over(); ++step) {
      for (size_t r = 0; r < n_; ++r) call_if_due(r, overlaps);
      cluster_.run_for(milliseconds(1));
    }
    cluster_.run_for(milliseconds(2000));
    cluster_.run_idle();
    return broken_promise();
  }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }

  ClusterOptions options() {
    ClusterOptions options;
    options.size = static_cast<int32_t>(2 + below(5));
    options.chunk_bytes = 64 + below(400);
    if (below(3) == 0) options.log_bytes = 6000;
    if (below(3) == 0) options.window_bytes = 1500;
    return options;
  }

  void disturb() {
    // One member may die. Then the links have no other faults, so all others answer at
    // once and stay in the view.
    if (n_ >= 4 && below(4) == 0) dead_ = below(n_);
    for (int32_t a = 0; a < cluster_.size(); ++a) {
      for (int32_t b = 0; b < cluster_.size(); ++b) {
        if (a == b) continue;
        cluster_.network.set_delay(Rank(a), Rank(b), microseconds(below(3000)));
        if (dead_) continue;
        if (below(3) == 0)
          cluster_.network.set_rate(Rank(a), Rank(b), 5'000 + below(200'000));
        if (below(6) == 0)
          cluster_.network.stall(Rank(a), Rank(b),
                                 cluster_.clock.now() + milliseconds(below(300)));
      }
    }
  }

  void choose_call() {
    call_ = scatter_call(cluster_.size(), 0,
                         below(2) == 0 ? ReduceOp::kSum : ReduceOp::kAvg);
    call_.policy.ceiling = milliseconds(20 + below(60));
    // One member may die.
    if (below(2) == 0)
      call_.policy.min_contributors = static_cast<int32_t>(1 + below(n_ - 1));
    call_.policy.max_consecutive_skips = static_cast<uint32_t>(1 + below(5));
    call_.policy.warmup_operations = static_cast<uint32_t>(1 + below(4));
    if (below(3) == 0) call_.policy.divisor = straggler::Divisor::kWorld;
  }

  bool is_done(size_t r) const {
    return answers_[r].size() == calls_.size() &&
           std::all_of(answers_[r].begin(), answers_[r].end(),
                       [](const auto& a) { return a->is_done(); });
  }
  bool is_over() const {
    for (size_t r = 0; r < n_; ++r)
      if (!is_done(r) && !(is_dead_ && r == *dead_)) return false;
    return true;
  }

  void call_if_due(size_t r, bool overlaps) {
    if (is_dead_ && r == *dead_) return;
    if (answers_[r].size() == calls_.size() || due_[r] > cluster_.clock.now()) return;
    if (!overlaps && !answers_[r].empty() && !answers_[r].back()->is_done()) return;
    if (dead_ == r && below(3) == 0) {
      is_dead_ = true;
      return cluster_.kill(static_cast<int32_t>(r));
    }
    const size_t op = answers_[r].size();
    answers_[r].push_back(call_on(cluster_, static_cast<int32_t>(r), calls_[op],
                                  inputs_[op], below(3) == 0));
    const bool is_late = below(5) == 0;
    due_[r] =
        cluster_.clock.now() + microseconds(is_late ? below(200'000) : below(4'000));
  }

  // Each block is the fold of its mask in rank order, even if the sender has its memory
  // back. A skipped member that learned of it in time reports it.
  std::string broken_promise() {
    for (size_t r = 0; r < n_; ++r) {
      if (is_dead_ && r == *dead_) continue;
      for (size_t op = 0; op < calls_.size(); ++op) {
        const auto where = concat("operation ", op + 1, " on rank ", r, ": ");
        if (answers_[r].size() <= op) return where + "not called";
        const Answer& a = *answers_[r][op];
        const auto what = wrong(calls_[op], inputs_[op], static_cast<int32_t>(r), a);
        if (!what.empty()) return where + what;
        for (const Rank owner : a.outcome.skipped_by) {
          const auto o = static_cast<size_t>(owner.value);
          if (is_dead_ && o == *dead_) continue;
          if (own_shard(a, owner.value)->contributors !=
              own_shard(*answers_[o][op], owner.value)->contributors)
            return where + concat("not the mask of rank ", o);
        }
      }
    }
    return {};
  }

  std::mt19937_64 random_;
  Cluster cluster_;
  size_t n_;
  std::optional<size_t> dead_;
  bool is_dead_ = false;
  Call call_;
  std::vector<Call> calls_;
  std::vector<Inputs> inputs_;
  std::vector<TimePoint> due_;                   // by rank
  std::vector<std::vector<AnswerPtr>> answers_;  // by rank, by operation
};

}  // namespace

TEST_CASE(
    "in random schedules each block is the fold of its mask, and each call ends") {
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    INFO("seed " << seed);
    REQUIRE(Schedule(seed).run() == "");
  }
}

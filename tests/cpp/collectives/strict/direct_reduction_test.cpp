// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/direct_reduction.h"

#include <set>

#include "harness/catch.h"
#include "harness/cluster.h"
#include "harness/idle_host.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

std::vector<Bytes> inputs_of(int32_t size, const Call& call, uint64_t seed) {
  std::vector<Bytes> inputs;
  for (int32_t r = 0; r < size; ++r)
    inputs.push_back(
        random_elements(call.dtype, call.count, seed * 100 + static_cast<uint64_t>(r)));
  return inputs;
}

// Runs the call on all members and compares every bit. Member `late` calls last, after
// a second.
void check(const ClusterOptions& options, const Call& call, bool in_place,
           int32_t late = -1) {
  Cluster cluster(options);
  cluster.set_all_delays(milliseconds(1));
  cluster.set_all_rates(1'000'000);
  const auto inputs = inputs_of(options.size, call, call.count + 7);
  std::vector<AnswerPtr> answers(inputs.size());
  const auto start = [&](int32_t r) {
    const auto i = static_cast<size_t>(r);
    answers[i] = cluster.allreduce(r, call, inputs[i], milliseconds(60'000), in_place);
  };
  for (int32_t r = 0; r < options.size; ++r)
    if (r != late) start(r);
  if (late >= 0) {
    cluster.run_for(milliseconds(1000));
    for (const auto& a : answers) REQUIRE((a == nullptr || !a->is_done()));
    start(late);
  }
  REQUIRE(cluster.run_until_done(answers, milliseconds(60'000)));
  const double scale = call.op == ReduceOp::kAvg ? 1.0 / options.size : 1.0;
  const Bytes expected = folded(call, inputs, all_ranks(options.size), scale);
  for (const auto& a : answers) {
    INFO(describe(call) << " on " << options.size);
    REQUIRE(a->is_ok());
    REQUIRE(a->outcome.kind == collectives::OutcomeKind::kComplete);
    REQUIRE(first_difference(call.dtype, a->output.data(), expected.data(),
                             call.count) == -1);
  }
  cluster.run_idle();
  for (const auto& a : answers) {
    REQUIRE(a->times == 1);
    REQUIRE(a->memory_is_free);
    REQUIRE(a->memory_is_untouched());
  }
}

}  // namespace

TEST_CASE("a result of any size, in place or not, is the fold in rank order") {
  for (int32_t n = 1; n <= 8; ++n) {
    ClusterOptions options;
    options.size = n;
    // Shards have at least 16 floats, and chunks 64.
    for (const size_t count : {0u, 1u, 3u, 64u, 1001u, 5000u}) {
      check(options, allreduce_call(DType::kFloat32, count), n % 2 == 0);
      if (n == 3) check(options, allreduce_call(DType::kFloat32, count), true);
      if (n == 4) check(options, allreduce_call(DType::kFloat32, count), false);
    }
  }
}

TEST_CASE("every op can reduce every dtype for which it is defined") {
  ClusterOptions options;
  options.size = 3;
  options.chunk_bytes = 100;  // not a multiple of 8 or 16
  for (const DType dtype : all_dtypes())
    for (const ReduceOp op : all_ops())
      if (is_pair_defined(op, dtype))
        check(options, allreduce_call(dtype, 77, op), true);
}

TEST_CASE("a late member is waited for, as an owner and as a contributor") {
  ClusterOptions options;
  options.size = 4;
  for (int32_t late = 0; late < 4; ++late) {
    check(options, allreduce_call(DType::kFloat32, 1000), true, late);
    check(options, allreduce_call(DType::kFloat32, 3), false, late);
  }
}

TEST_CASE("with a send window the result is the same for any late member") {
  for (int32_t n = 2; n <= 5; ++n) {
    ClusterOptions options;
    options.size = n;
    options.lead_bytes = 1;  // two chunks
    for (const size_t count : {1001u, 5000u})
      for (int32_t late = -1; late < n; ++late)
        check(options, allreduce_call(DType::kFloat32, count), late % 2 == 0, late);
  }
}

namespace {

// Rank 0 of three members gives 30 chunks to each of the others, as results come back.
struct Giver {
  explicit Giver(size_t lead_bytes)
      : host(3, {.chunk_bytes = kChunk, .lead_bytes = lead_bytes}) {
    input.resize(call.bytes());
    operation =
        std::make_shared<collectives::DirectReduction>(&host, Seq(1), call, Rank(0));
    collectives::LocalCall local;
    local.input = local.output = bytes_of(input);
    REQUIRE(operation->start(std::move(local)).is_ok());
  }

  // Delivers the next `bytes` of the result of `owner`.
  void give_back(int32_t owner, size_t bytes) {
    transport::FrameHeader header;
    header.kind = transport::FrameKind::kResult;
    header.shard = static_cast<uint16_t>(owner);
    header.offset = back[static_cast<size_t>(owner)];
    header.payload_bytes = static_cast<uint32_t>(bytes);
    header.total_bytes = kShard;
    REQUIRE(operation->place(Rank(owner), header, {}).is_ok());
    operation->arrived(Rank(owner), header);
    back[static_cast<size_t>(owner)] += bytes;
  }

  // Number of chunks that the owner was given. Checks their order.
  size_t chunks_to(int32_t owner) const {
    size_t bytes = 0;
    for (const transport::OutMessage& m : host.queued) {
      if (m.header.shard != owner) continue;
      REQUIRE(m.header.offset == bytes);
      REQUIRE((m.extension_bytes > 0) == (bytes == 0));  // the first has the call
      bytes += m.bytes;
    }
    REQUIRE(bytes % kChunk == 0);
    return bytes / kChunk;
  }

  static constexpr size_t kChunk = 1024, kShard = 30 * kChunk;
  Call call = allreduce_call(DType::kFloat32, 3 * kShard / sizeof(float));
  IdleHost host;
  Bytes input;
  std::shared_ptr<collectives::DirectReduction> operation;
  std::array<size_t, 3> back{};
};

}  // namespace

TEST_CASE("the data ahead of the result is limited by the send window") {
  // Each of the two others has half of the window, in whole chunks.
  for (const auto& [lead_bytes, chunks] :
       {std::pair<size_t, size_t>{1, 2}, {4095, 2}, {10 * 1024 + 1000, 5}}) {
    Giver giver(lead_bytes);
    giver.host.learnt(Rank(1)).send_window.on_back(0, Duration(1),
                                                   giver.host.clock().now());
    CHECK(giver.chunks_to(1) == chunks);
    CHECK(giver.chunks_to(2) == chunks);
    giver.give_back(1, Giver::kChunk);
    CHECK(giver.chunks_to(1) == chunks + 1);
    CHECK(giver.chunks_to(2) == chunks);
    giver.host.manual_clock.advance(milliseconds(1));
    giver.give_back(1, 2 * Giver::kChunk);
    CHECK(giver.chunks_to(1) == chunks + 3);
  }
  CHECK(Giver(0).chunks_to(1) == 30);
  CHECK(Giver(1 << 20).chunks_to(1) == 30);
}

TEST_CASE(
    "results that come back at once make the send window longer, also for later "
    "calls") {
  Giver giver(1);
  collectives::OwnerSendWindow& window = giver.host.learnt(Rank(1)).send_window;
  giver.give_back(1, Giver::kChunk);  // no time is measured before it
  giver.host.manual_clock.advance(milliseconds(5));
  giver.give_back(1, Giver::kChunk);
  CHECK(window.times() == 1);
  giver.give_back(1, Giver::kChunk);  // was sent when the first came back
  CHECK(window.times() == 2);
  CHECK(giver.chunks_to(1) == 3 + 4);
}

TEST_CASE("small pieces that come back do not release small pieces") {
  Giver giver(1);
  giver.host.learnt(Rank(1)).send_window.on_back(0, Duration(1),
                                                 TimePoint(Duration(1)));
  for (int i = 0; i < 100; ++i) {
    giver.host.manual_clock.advance(milliseconds(1));
    giver.give_back(1, 60);
  }
  CHECK(giver.chunks_to(1) == 2 + 6000 / Giver::kChunk);
  CHECK(giver.host.queued.size() == 2 + 6000 / Giver::kChunk);
}

TEST_CASE("an owner that gives back more than it was given is refused") {
  Giver giver(1);
  giver.give_back(1, Giver::kChunk);
  transport::FrameHeader header;
  header.kind = transport::FrameKind::kResult;
  header.shard = 1;
  header.offset = Giver::kChunk;
  header.payload_bytes = 4 * Giver::kChunk;
  header.total_bytes = Giver::kShard;
  CHECK_FALSE(giver.operation->place(Rank(1), header, {}).is_ok());
}

TEST_CASE("while data is held back, a frame of any owner continues the call") {
  Giver giver(1);
  CHECK(giver.operation->first_awaited() == kNoRank);
  CHECK(Giver(0).operation->first_awaited() == Rank(1));
}

TEST_CASE("while another call makes progress, held-back data is not sent at once") {
  Giver giver(1);
  giver.host.manual_clock.advance(milliseconds(3));
  giver.host.learnt(Rank(2)).gave_back_at = giver.host.clock().now();
  CHECK(giver.operation->next_look() == giver.host.clock().now() + milliseconds(5));
}

TEST_CASE("if no owner gives back anything for a while, the rest is sent") {
  using collectives::DirectReduction;
  Giver giver(1);
  giver.host.manual_clock.advance(milliseconds(4));
  giver.give_back(2, Giver::kChunk);
  const TimePoint due = giver.host.clock().now() + milliseconds(5);
  CHECK(giver.operation->next_look() == due);
  giver.operation->on_time(due - Duration(1));
  CHECK(giver.chunks_to(1) == 2);
  CHECK(giver.chunks_to(2) == 3);
  giver.operation->on_time(due);
  CHECK(giver.chunks_to(1) == 30);
  CHECK(giver.chunks_to(2) == 30);
  CHECK_FALSE(giver.operation->next_look().has_value());
  CHECK(giver.host.learnt(Rank(1)).send_window.times() == 2);
  giver.give_back(1, 4 * Giver::kChunk);
  CHECK(giver.chunks_to(1) == 30);
}

TEST_CASE("a time without results does not count for an owner that has all data") {
  Giver giver(1);
  for (int i = 0; i < 28; ++i) {
    giver.host.manual_clock.advance(milliseconds(1));
    giver.give_back(2, Giver::kChunk);
  }
  REQUIRE((giver.chunks_to(1) == 2 && giver.chunks_to(2) == 30));
  const size_t before = giver.host.learnt(Rank(2)).send_window.times();
  giver.operation->on_time(*giver.operation->next_look());
  CHECK(giver.chunks_to(1) == 30);
  CHECK(giver.host.learnt(Rank(1)).send_window.times() == 2);
  CHECK(giver.host.learnt(Rank(2)).send_window.times() == before);
}

TEST_CASE("a send window costs nothing with a late member, and little on a long way") {
  const Call call = allreduce_call(DType::kFloat32, 40'000);
  const auto inputs = inputs_of(4, call, 3);
  const auto taken = [&](size_t lead_bytes, Duration delay, Duration lateness) {
    Cluster cluster({.size = 4, .chunk_bytes = 1024, .lead_bytes = lead_bytes});
    cluster.set_all_delays(delay);
    cluster.set_all_rates(1'000'000);
    TimePoint start{};
    for (int i = 0; i < 4; ++i) {  // only the last operation counts
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < 4; ++r) {
        if (r == 3) cluster.run_for(lateness);
        answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
      }
      start = cluster.clock.now();
      REQUIRE(cluster.run_until_done(answers, milliseconds(10'000)));
    }
    return std::chrono::duration<double>(cluster.clock.now() - start).count();
  };
  for (const int delay_us : {50, 500, 4000}) {
    INFO(delay_us);
    const auto delay = std::chrono::microseconds(delay_us);
    for (const auto lateness : {milliseconds(0), milliseconds(100)})
      CHECK(taken(1, delay, lateness) < 1.1 * taken(0, delay, lateness));
  }
}

TEST_CASE("with one owner the whole bucket is folded at one rank") {
  const auto taken = [](Algorithm algorithm) {
    Call call = allreduce_call(DType::kFloat32, 40'000, ReduceOp::kAvg);
    call.algorithm = algorithm;
    ClusterOptions options;
    options.size = 4;
    for (int32_t late = -1; late < 4; ++late) check(options, call, late % 2 == 0, late);
    Cluster cluster(options);
    cluster.set_all_rates(1'000'000);
    std::vector<AnswerPtr> answers;
    for (const Bytes& input : inputs_of(4, call, 1))
      answers.push_back(
          cluster.allreduce(static_cast<int32_t>(answers.size()), call, input));
    const TimePoint start = cluster.clock.now();
    REQUIRE(cluster.run_until_done(answers, milliseconds(60'000)));
    return cluster.clock.now() - start;
  };
  // One link carries the whole tensor, there and back.
  CHECK(2 * taken(Algorithm::kOneOwner) > 3 * taken(Algorithm::kDirect));
}

TEST_CASE("a group with more members than the small table holds can reduce") {
  ClusterOptions options;
  options.size = 66;
  options.min_shard_bytes = 1 << 20;
  check(options, allreduce_call(DType::kInt32, 5), true);
}

TEST_CASE("a reduce gives the root the fold and does not change the others' data") {
  for (const int32_t n : {1, 2, 3, 5}) {
    for (int32_t root = 0; root < n; ++root) {
      for (const size_t count : {0u, 3u, 64u, 1001u}) {
        Cluster cluster({.size = n});
        cluster.set_all_rates(1'000'000);
        Call call = allreduce_call(DType::kFloat32, count, ReduceOp::kAvg);
        call.kind = CallKind::kReduce;
        call.root = Rank(root);
        const auto inputs = inputs_of(n, call, count);
        std::vector<AnswerPtr> answers;
        for (int32_t r = 0; r < n; ++r)
          answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)]));
        REQUIRE(cluster.run_until_done(answers, milliseconds(10'000)));
        const auto at_root = static_cast<size_t>(root);
        CHECK(answers[at_root]->output == folded(call, inputs, all_ranks(n), 1.0 / n));
        for (size_t r = 0; r < inputs.size(); ++r) {
          REQUIRE(answers[r]->is_ok());
          if (r != at_root) CHECK(answers[r]->output == inputs[r]);
        }
        cluster.run_idle();
        for (const auto& a : answers) CHECK(a->memory_is_free);
      }
    }
  }
}

TEST_CASE(
    "a reduce_scatter gives each member its block, even or uneven, with any late "
    "member") {
  for (const bool is_even : {true, false}) {
    for (int32_t late = 0; late < 3; ++late) {
      Cluster cluster({.size = 3});
      cluster.set_all_delays(milliseconds(1));
      cluster.set_all_rates(1'000'000);
      const std::vector<size_t> counts = is_even ? std::vector<size_t>{500, 500, 500}
                                                 : std::vector<size_t>{700, 0, 33};
      Call call = allreduce_call(DType::kFloat32, counts[0] + counts[1] + counts[2]);
      call.kind = CallKind::kReduceScatter;
      std::vector<std::vector<Bytes>> blocks(3);  // by giver, then by taker
      for (size_t giver = 0; giver < 3; ++giver)
        for (size_t taker = 0; taker < 3; ++taker)
          blocks[giver].push_back(
              random_elements(call.dtype, counts[taker], giver * 10 + taker));
      std::vector<AnswerPtr> answers(3);
      const auto start = [&](int32_t r) {
        const auto i = static_cast<size_t>(r);
        answers[i] = cluster.reduce_scatter(r, call, blocks[i]);
      };
      for (int32_t r = 0; r < 3; ++r)
        if (r != late) start(r);
      cluster.run_for(milliseconds(300));
      start(late);
      REQUIRE(cluster.run_until_done(answers, milliseconds(10'000)));
      for (size_t taker = 0; taker < 3; ++taker) {
        REQUIRE(answers[taker]->is_ok());
        Call one = allreduce_call(call.dtype, counts[taker]);
        const std::vector<Bytes> parts = {blocks[0][taker], blocks[1][taker],
                                          blocks[2][taker]};
        CHECK(answers[taker]->output == folded(one, parts, all_ranks(3), 1.0));
      }
      cluster.run_idle();
      for (const auto& a : answers) CHECK(a->memory_is_free);
    }
  }
}

TEST_CASE("all members get an error if blocks of a reduce_scatter differ in size") {
  for (const int32_t late : {0, 1}) {
    Cluster cluster({.size = 2});
    Call call = allreduce_call(DType::kUint8, 100);
    call.kind = CallKind::kReduceScatter;
    std::vector<AnswerPtr> answers(2);
    const std::vector<std::vector<Bytes>> blocks = {{Bytes(60), Bytes(40)},
                                                    {Bytes(50), Bytes(50)}};
    for (const int32_t r : {1 - late, late}) {
      answers[static_cast<size_t>(r)] =
          cluster.reduce_scatter(r, call, blocks[static_cast<size_t>(r)]);
      cluster.run_for(milliseconds(10));
    }
    for (const auto& a : answers) {
      REQUIRE(a->is_done());
      CHECK(a->status.code() == Code::kInvalidArgument);
      CHECK(a->status.message().find("bytes where rank") != std::string::npos);
    }
  }
}

TEST_CASE("no member leaves a barrier before all have called") {
  Cluster cluster({.size = 5});
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 4; ++r) answers.push_back(cluster.barrier(r));
  cluster.run_for(milliseconds(100));
  for (const auto& a : answers) CHECK_FALSE(a->is_done());
  answers.push_back(cluster.barrier(4));
  REQUIRE(cluster.run_until_done(answers, milliseconds(100)));
  for (const auto& a : answers) CHECK(a->is_ok());
}

TEST_CASE("many operations in flight keep their own data") {
  Cluster cluster({.size = 3});
  cluster.set_all_delays(milliseconds(2));
  cluster.set_all_rates(200'000);
  std::vector<AnswerPtr> answers;
  std::vector<Bytes> expected;
  for (size_t op = 0; op < 30; ++op) {
    const Call call = allreduce_call(DType::kFloat32, 40 * op);
    const auto inputs = inputs_of(3, call, op);
    expected.push_back(folded(call, inputs, all_ranks(3), 1.0));
    for (int32_t r = 0; r < 3; ++r) {
      answers.push_back(cluster.allreduce(r, call, inputs[static_cast<size_t>(r)],
                                          milliseconds(60'000), true,
                                          static_cast<Priority>(op % 4)));
    }
  }
  REQUIRE(cluster.run_until_done(answers, milliseconds(60'000)));
  for (size_t i = 0; i < answers.size(); ++i) {
    REQUIRE(answers[i]->is_ok());
    REQUIRE(answers[i]->output == expected[i / 3]);
    REQUIRE(answers[i]->outcome.seq.value == i / 3 + 1);
  }
}

TEST_CASE("calls that are under way together end one after the other") {
  for (const size_t lead_bytes : {0u, 1u}) {
    Cluster cluster({.size = 4, .lead_bytes = lead_bytes});
    cluster.set_all_rates(1'000'000);
    const Call call = allreduce_call(DType::kFloat32, 20'000);
    std::vector<std::vector<AnswerPtr>> calls(4);
    for (auto& answers : calls)
      for (int32_t r = 0; r < 4; ++r)
        answers.push_back(cluster.allreduce(r, call, Bytes(call.bytes())));
    const TimePoint start = cluster.clock.now();
    std::vector<double> ends;
    for (const auto& answers : calls) {
      REQUIRE(cluster.run_until_done(answers, milliseconds(10'000)));
      ends.push_back(
          std::chrono::duration<double>(cluster.clock.now() - start).count());
    }
    for (size_t i = 0; i < ends.size(); ++i)
      CHECK(ends[i] / ends.back() ==
            Approx(static_cast<double>(i + 1) / 4).margin(0.05));
  }
}

namespace {

// Allreduces whose input arrives shard by shard in steps of `step` bytes. Input that
// has not arrived yet is garbage.
struct InParts {
  InParts(const ClusterOptions& options, Call called, bool in_place)
      : call(std::move(called)),
        plan(call.count, size_of(call.dtype), options.size, options.min_shard_bytes),
        cluster(options),
        inputs(inputs_of(options.size, call, 5)) {
    cluster.set_all_delays(milliseconds(1));
    for (const Bytes& input : inputs) {
      sources.emplace_back(input.size(), 0xcd);
      outputs.emplace_back(in_place ? 0 : input.size(), 0xab);
      results.emplace_back(input.size(), 0xab);
    }
    ends.resize(inputs.size());
    readies.resize(inputs.size());
    parts.resize(inputs.size());
  }

  void give(size_t rank, size_t ready) {
    for (int32_t s = 0; s < plan.num_shards(); ++s) {
      const size_t first = plan.first_byte(s);
      const size_t bytes = std::min(ready, plan.num_bytes(s));
      for (size_t i = std::min(readies[rank], bytes); i < bytes; ++i)
        sources[rank][first + i] = inputs[rank][first + i];
    }
    readies[rank] = ready;
    if (parts[rank]) parts[rank]->advance(ready);
  }

  void start(size_t rank, size_t ready) {
    give(rank, ready);
    Bytes& output = outputs[rank].empty() ? sources[rank] : outputs[rank];
    parts[rank] = std::make_shared<collectives::Parts>(
        ready, [this, rank, &output](size_t begin, size_t end) {
          for (size_t i = begin; i < end; ++i) {
            REQUIRE(told.emplace(rank, i).second);  // each byte once
            results[rank][i] = output[i];
          }
        });
    collectives::LocalCall local;
    local.input = bytes_of(sources[rank]);
    local.output = bytes_of(output);
    local.parts = parts[rank];
    local.on_done = [this, rank](const Status& s, const collectives::Outcome&) {
      ends[rank] = s;
    };
    cluster.group(static_cast<int32_t>(rank))
        .call(call, std::move(local), milliseconds(60'000));
  }

  Call call;
  collectives::ShardPlan plan;
  Cluster cluster;
  std::vector<Bytes> inputs, sources, outputs, results;
  std::vector<std::shared_ptr<collectives::Parts>> parts;
  std::vector<size_t> readies;
  std::set<std::pair<size_t, size_t>> told;  // rank and byte
  std::vector<std::optional<Status>> ends;
};

}  // namespace

TEST_CASE("an input that arrives in parts is folded and returned in parts") {
  constexpr size_t kStep = 512;
  for (const int32_t n : {1, 2, 3, 5}) {
    for (const bool in_place : {true, false}) {
      for (const size_t count : {3u, 1001u, 5000u}) {
        InParts run({.size = n}, allreduce_call(DType::kFloat32, count), in_place);
        INFO(count << " elements on " << n << ", in place " << in_place);
        const auto size = static_cast<size_t>(n);
        const size_t shard = run.plan.num_bytes(0);
        for (size_t r = 0; r < size; ++r) run.start(r, std::min(kStep, shard));
        for (size_t ready = 2 * kStep; ready < shard + kStep; ready += kStep) {
          run.cluster.run_for(milliseconds(10));
          // The bytes that all ranks have given are returned everywhere, and no others.
          size_t here = 0;
          for (int32_t s = 0; s < run.plan.num_shards(); ++s)
            here += std::min(ready - kStep, run.plan.num_bytes(s));
          REQUIRE(run.told.size() == size * here);
          // The last rank is a step behind the others.
          for (size_t r = 0; r + 1 < size; ++r) run.give(r, ready);
          run.cluster.run_for(milliseconds(10));
          if (size > 1) REQUIRE(run.told.size() == size * here);
          run.give(size - 1, ready);
        }
        run.cluster.run_for(milliseconds(50));
        const Bytes expected = folded(run.call, run.inputs, all_ranks(n), 1.0);
        for (size_t r = 0; r < size; ++r) {
          REQUIRE(run.ends[r].has_value());
          REQUIRE(run.ends[r]->is_ok());
          REQUIRE(run.results[r] == expected);
          REQUIRE((in_place ? run.sources : run.outputs)[r] == expected);
        }
        run.give(0, shard + 2 * kStep);  // after the end of the call
        run.cluster.run_idle();
      }
    }
  }
}

TEST_CASE("an input that arrives in parts keeps to the send window") {
  for (const size_t step : {100u, 512u, 700u}) {
    InParts run({.size = 3, .lead_bytes = 1}, allreduce_call(DType::kFloat32, 5000),
                true);
    const size_t shard = run.plan.num_bytes(0);
    for (size_t r = 0; r < 3; ++r) run.start(r, 0);
    for (size_t ready = step; ready < shard + step; ready += step) {
      for (size_t r = 0; r < 3; ++r) run.give(r, std::min(ready, shard) / 4 * 4);
      run.cluster.run_for(milliseconds(1));
    }
    run.cluster.run_for(milliseconds(200));
    const Bytes expected = folded(run.call, run.inputs, all_ranks(3), 1.0);
    for (size_t r = 0; r < 3; ++r) {
      REQUIRE((run.ends[r].has_value() && run.ends[r]->is_ok()));
      REQUIRE(run.results[r] == expected);
    }
  }
}

TEST_CASE("a part that fails ends its call on all members, and no other call") {
  InParts run({.size = 3}, allreduce_call(DType::kFloat32, 3000), true);
  for (size_t r = 0; r < 3; ++r) run.start(r, 512);
  run.cluster.run_for(milliseconds(10));
  run.parts[1]->fail({Code::kInternal, "the copy of a part failed", Rank(1)});
  run.cluster.run_for(milliseconds(10));
  for (const auto& end : run.ends) {
    REQUIRE(end.has_value());
    CHECK(end->message().find("the copy of a part failed") != std::string::npos);
  }
  for (size_t r = 0; r < 3; ++r) run.give(r, 1024);  // the call has ended
  run.cluster.run_idle();
  CHECK(run.told.size() == 3u * 3 * 512);
  std::vector<AnswerPtr> next;
  for (int32_t r = 0; r < 3; ++r)
    next.push_back(run.cluster.allreduce(r, run.call, run.inputs[0]));
  REQUIRE(run.cluster.run_until_done(next, milliseconds(10'000)));
  for (const auto& answer : next) CHECK(answer->is_ok());
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/block_exchange.h"

#include <random>

#include "harness/catch.h"
#include "harness/cluster.h"
#include "harness/spy_link.h"

using namespace aikido;
using namespace aikido::testing;
using transport::FrameHeader;
using transport::FrameKind;

namespace {

Call call_of(CallKind kind, size_t count, Rank root = kNoRank) {
  Call call;
  call.kind = kind;
  call.dtype = DType::kUint8;
  call.count = count;
  call.root = root;
  return call;
}

Bytes data_of(int32_t rank, size_t bytes) {
  return random_elements(DType::kUint8, bytes, static_cast<uint64_t>(rank) + bytes);
}

void check_all(Cluster& cluster, const std::vector<AnswerPtr>& answers,
               const Bytes& expected) {
  REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
  for (const auto& a : answers) {
    REQUIRE(a->is_ok());
    REQUIRE(a->output == expected);
  }
  cluster.run_idle();
  for (const auto& a : answers) {
    REQUIRE(a->times == 1);
    REQUIRE(a->memory_is_free);
    REQUIRE(a->memory_is_untouched());
  }
}

// Blocks up to 1000 bytes are eager, and chunks have 256 bytes.
ClusterOptions options_of(int32_t size) {
  return {.size = size, .chunk_bytes = 256, .eager_bytes = 1000};
}

}  // namespace

TEST_CASE("a broadcast gives every member the root's bytes, small and large") {
  for (const size_t bytes : {0u, 1u, 256u, 1000u, 1001u, 10'000u}) {
    for (int32_t root = 0; root < 4; ++root) {
      Cluster cluster(options_of(4));
      cluster.set_all_delays(milliseconds(1));
      cluster.set_all_rates(100'000);
      const Call call = call_of(CallKind::kBroadcast, bytes, Rank(root));
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < 4; ++r)
        answers.push_back(cluster.broadcast(
            r, call, r == root ? data_of(root, bytes) : Bytes(bytes)));
      check_all(cluster, answers, data_of(root, bytes));
    }
  }
}

TEST_CASE("an allgather collects the bytes of all members in rank order") {
  for (const size_t bytes : {0u, 1u, 1000u, 1001u, 5'000u}) {
    for (int32_t n = 1; n <= 5; ++n) {
      Cluster cluster(options_of(n));
      cluster.set_all_rates(100'000);
      Bytes expected;
      for (int32_t r = 0; r < n; ++r) {
        const Bytes part = data_of(r, bytes);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      std::vector<AnswerPtr> answers;
      for (int32_t r = 0; r < n; ++r)
        answers.push_back(cluster.allgather(r, call_of(CallKind::kAllgather, bytes),
                                            data_of(r, bytes)));
      check_all(cluster, answers, expected);
    }
  }
}

TEST_CASE("a receiver may call at any point of an early block's arrival") {
  // At 100 bytes/ms, the receiver calls before, during and after the arrival of the
  // first 1000 bytes.
  for (const size_t bytes : {1000u, 1001u, 3000u}) {
    for (const int ms : {0, 1, 3, 4, 5, 6, 8, 11, 12, 13, 14, 20}) {
      Cluster cluster(options_of(2));
      cluster.set_all_rates(100'000);
      const Call call = call_of(CallKind::kBroadcast, bytes, Rank(0));
      std::vector<AnswerPtr> answers = {cluster.broadcast(0, call, data_of(0, bytes))};
      cluster.run_for(milliseconds(ms));
      answers.push_back(cluster.broadcast(1, call, Bytes(bytes)));
      INFO(bytes << " bytes, after " << ms << " ms");
      check_all(cluster, answers, data_of(0, bytes));
    }
  }
}

TEST_CASE(
    "the rest of a large block waits at the sender until the receiver asks for it") {
  Cluster cluster(options_of(2));
  size_t sent = 0;
  cluster.network.set_tap([&](Rank, Rank, const FrameHeader& header, TimePoint at) {
    if (header.kind == FrameKind::kData) sent += header.payload_bytes;
    return at;
  });
  const Call call = call_of(CallKind::kBroadcast, 10'000, Rank(0));
  std::vector<AnswerPtr> answers = {cluster.broadcast(0, call, data_of(0, 10'000))};
  cluster.run_for(milliseconds(400));
  CHECK(sent == 1000);
  cluster.run_for(milliseconds(600));
  CHECK_FALSE(answers[0]->is_done());
  answers.push_back(cluster.broadcast(1, call, Bytes(10'000)));
  check_all(cluster, answers, data_of(0, 10'000));
  CHECK(sent == 10'000);
}

TEST_CASE(
    "a link carries the beginning of a large block while the receiver asks for the "
    "rest") {
  // The beginning takes 10 ms and more. The request arrives after 5 ms, or 5 ms later.
  const auto ends_after = [](int64_t late_ms) {
    Cluster cluster(options_of(2));
    cluster.set_all_delays(milliseconds(5));
    cluster.set_all_rates(100'000);
    const Call call = call_of(CallKind::kBroadcast, 10'000, Rank(0));
    const TimePoint begin = cluster.clock.now();
    std::vector<AnswerPtr> answers = {cluster.broadcast(0, call, data_of(0, 10'000))};
    cluster.run_for(milliseconds(late_ms));
    answers.push_back(cluster.broadcast(1, call, Bytes(10'000)));
    check_all(cluster, answers, data_of(0, 10'000));
    return answers[1]->at - begin;
  };
  CHECK(ends_after(5) == ends_after(0));
}

TEST_CASE("beginnings of large blocks that were held back arrive before the rest") {
  Cluster cluster(
      {.size = 2, .chunk_bytes = 256, .eager_bytes = 1000, .window_bytes = 4000});
  cluster.set_all_delays(milliseconds(1));
  std::vector<AnswerPtr> answers;
  const auto call_all_of = [&](int32_t rank) {
    for (size_t i = 0; i < 8; ++i)
      answers.push_back(
          cluster.broadcast(rank, call_of(CallKind::kBroadcast, 3000 + i, Rank(0)),
                            rank == 0 ? data_of(0, 3000 + i) : Bytes(3000 + i)));
  };
  call_all_of(0);
  cluster.run_for(milliseconds(100));
  call_all_of(1);
  REQUIRE(cluster.run_until_done(answers, milliseconds(1000)));
  for (size_t i = 0; i < 8; ++i) {
    CHECK(answers[i]->is_ok());
    CHECK(answers[8 + i]->output == data_of(0, 3000 + i));
  }
}

TEST_CASE("as many beginnings of large blocks may wait as small blocks of their size") {
  // Two whole blocks would be more than a receiver lets wait.
  Cluster cluster(
      {.size = 2, .chunk_bytes = 256, .eager_bytes = 1000, .window_bytes = 8000});
  std::vector<AnswerPtr> answers;
  const Call call = call_of(CallKind::kBroadcast, 20'000, Rank(0));
  for (size_t i = 0; i < 8; ++i)
    answers.push_back(cluster.broadcast(0, call, data_of(0, 20'000)));
  cluster.run_for(milliseconds(100));
  for (size_t i = 0; i < 8; ++i)
    answers.push_back(cluster.broadcast(1, call, Bytes(20'000)));
  check_all(cluster, answers, data_of(0, 20'000));
}

TEST_CASE("a root that still sends accepts that a member with the whole block leaves") {
  Cluster cluster(options_of(3));
  const Call call = call_of(CallKind::kBroadcast, 1000, Rank(0));
  cluster.network.set_rate(Rank(0), Rank(2), 10'000);
  std::vector<AnswerPtr> answers;
  for (int32_t r = 0; r < 3; ++r)
    answers.push_back(cluster.broadcast(r, call, data_of(0, 1000)));
  cluster.run_for(milliseconds(1));
  REQUIRE(answers[1]->is_ok());
  cluster.group(1).leave();
  cluster.run_for(milliseconds(1));
  cluster.group(1).close_links();
  REQUIRE(cluster.run_until_done(answers, milliseconds(500)));
  CHECK(answers[0]->is_ok());
  CHECK(answers[2]->is_ok());
}

TEST_CASE("an alltoall carries blocks of any size between any two members") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto n = static_cast<int32_t>(1 + random() % 5);
    Cluster cluster(options_of(n));
    cluster.set_all_delays(milliseconds(1));
    cluster.set_all_rates(100'000);
    const size_t sizes[] = {0, 0, 1, 256, 1000, 1001, 4000};
    std::vector<std::vector<std::optional<Bytes>>> out(static_cast<size_t>(n));
    for (size_t from = 0; from < out.size(); ++from)
      for (size_t to = 0; to < out.size(); ++to)
        out[from].push_back(from == to ? std::nullopt
                                       : std::optional(random_elements(
                                             DType::kUint8, sizes[random() % 7],
                                             seed + from * 9 + to)));
    std::vector<AnswerPtr> answers;
    for (size_t r = 0; r < out.size(); ++r) {
      std::vector<std::optional<size_t>> in;
      for (size_t from = 0; from < out.size(); ++from)
        in.push_back(from == r ? std::nullopt : std::optional(out[from][r]->size()));
      cluster.run_for(milliseconds(static_cast<int64_t>(random() % 30)));
      answers.push_back(cluster.exchange(static_cast<int32_t>(r),
                                         call_of(CallKind::kAlltoall, 0), out[r], in));
    }
    INFO("seed " << seed);
    REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
    for (size_t r = 0; r < out.size(); ++r) {
      Bytes expected;
      for (size_t from = 0; from < out.size(); ++from)
        if (from != r)
          expected.insert(expected.end(), out[from][r]->begin(), out[from][r]->end());
      REQUIRE(answers[r]->is_ok());
      REQUIRE(answers[r]->output == expected);
    }
    cluster.run_idle();
    for (const auto& a : answers) CHECK(a->memory_is_free);
  }
}

TEST_CASE("two members that disagree about a block's size both get an error") {
  // Sizes below and above the eager size, so that either member may wait for the other.
  for (const size_t sent : {0u, 10u, 1000u, 5000u}) {
    for (const size_t expected : {0u, 10u, 1000u, 5000u}) {
      if (sent == expected) continue;
      for (const int32_t late : {0, 1}) {
        Cluster cluster(options_of(2));
        const Call call = call_of(CallKind::kAlltoall, 0);
        std::vector<AnswerPtr> answers(2);
        for (const int32_t r : {1 - late, late}) {
          answers[static_cast<size_t>(r)] =
              r == 0 ? cluster.exchange(0, call, {std::nullopt, Bytes(sent)}, {})
                     : cluster.exchange(1, call, {}, {expected});
          cluster.run_for(milliseconds(10));
        }
        cluster.run_for(milliseconds(600));
        INFO(sent << " bytes sent, " << expected << " expected, late " << late);
        REQUIRE(answers[1]->is_done());
        CHECK(answers[1]->status.code() == Code::kInvalidArgument);
        const std::string& text = answers[1]->status.message();
        CHECK(text.find("rank 0 sends " + std::to_string(sent)) != std::string::npos);
        CHECK(text.find("rank 1 expects " + std::to_string(expected)) !=
              std::string::npos);
        // The sender of an eager block may be done before the error is known.
        REQUIRE(answers[0]->is_done());
        if (sent > 1000) CHECK(answers[0]->status.message() == text);
      }
    }
  }
}

TEST_CASE("members that each wait for the other as the root get an error") {
  // No member has data to send, so only the question after a while shows the error.
  for (const size_t bytes : {10u, 5000u}) {
    Cluster cluster(options_of(2));
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < 2; ++r)
      answers.push_back(cluster.broadcast(
          r, call_of(CallKind::kBroadcast, bytes, Rank(1 - r)), Bytes(bytes)));
    cluster.run_for(milliseconds(600));
    for (const auto& a : answers) {
      REQUIRE(a->is_done());
      CHECK(a->status.message().find("broadcast(src 0, ") != std::string::npos);
      CHECK(a->status.message().find("broadcast(src 1, ") != std::string::npos);
    }
  }
}

TEST_CASE("a block of unknown size gets its memory when it arrives") {
  for (const size_t bytes : {0u, 10u, 1000u, 3000u}) {
    for (const int ms : {0, 5, 50}) {
      Cluster cluster(options_of(2));
      cluster.set_all_rates(100'000);
      const Call call = call_of(CallKind::kSparseAllreduce, 0);
      const auto sender =
          cluster.exchange(0, call, {std::nullopt, data_of(0, bytes)}, {});
      cluster.run_for(milliseconds(ms));
      Bytes got;
      Status status(Code::kInternal, "not over");
      collectives::LocalCall local;
      local.in_blocks.push_back({Rank(0), nullptr, 4000});
      local.allocate = [&](Rank, size_t size) {
        got.resize(size);
        return bytes_of(got);
      };
      local.on_done = [&](const Status& s, const collectives::Outcome&) { status = s; };
      cluster.group(1).call(call, std::move(local), milliseconds(5000));
      cluster.run_for(milliseconds(1000));
      INFO(bytes << " bytes, called after " << ms << " ms");
      CHECK(status.is_ok());
      CHECK(sender->is_ok());
      CHECK(got == data_of(0, bytes));
    }
  }
}

TEST_CASE("a block of unknown size for which there is no memory fails its call only") {
  for (const int ms : {0, 100}) {
    Cluster cluster(options_of(2));
    cluster.set_all_delays(milliseconds(1));
    const Call call = call_of(CallKind::kSparseAllreduce, 0);
    const auto sender = cluster.exchange(0, call, {std::nullopt, Bytes(3000)}, {});
    cluster.run_for(milliseconds(ms));
    Status status;
    collectives::LocalCall local;
    local.in_blocks.push_back({Rank(0), nullptr, 4000});
    local.allocate = [](Rank, size_t) -> std::byte* { throw std::bad_alloc(); };
    local.on_done = [&](const Status& s, const collectives::Outcome&) { status = s; };
    cluster.group(1).call(call, std::move(local), milliseconds(5000));
    cluster.run_for(milliseconds(100));
    INFO("called after " << ms << " ms: " << status.message());
    CHECK(status.message().find("memory") != std::string::npos);
    // A member that has called first may have sent all its data before the error is
    // known.
    if (ms > 0) CHECK(sender->status.message() == status.message());
    const Call next = call_of(CallKind::kBroadcast, 10, Rank(0));
    check_all(cluster,
              {cluster.broadcast(0, next, data_of(0, 10)),
               cluster.broadcast(1, next, Bytes(10))},
              data_of(0, 10));
  }
}

TEST_CASE("a block of unknown size that is too large is refused") {
  Cluster cluster(options_of(2));
  const Call call = call_of(CallKind::kSparseAllreduce, 0);
  const auto sender = cluster.exchange(0, call, {std::nullopt, Bytes(3000)}, {});
  Status status;
  collectives::LocalCall local;
  local.in_blocks.push_back({Rank(0), nullptr, 2000});
  local.on_done = [&](const Status& s, const collectives::Outcome&) { status = s; };
  cluster.group(1).call(call, std::move(local), milliseconds(5000));
  cluster.run_for(milliseconds(100));
  CHECK(status.message().find("rank 0 sends 3000 bytes where rank 1 expects 2000") !=
        std::string::npos);
  CHECK(sender->is_done());
}

namespace {

// One member of a group, with links that send nothing. The test plays the other
// members.
struct Alone {
  ManualClock clock;
  engine::Group group;
  std::vector<SpyLink*> spies;  // links to the others, by rank
  std::vector<const SpyLink*> order;
  Bytes memory = Bytes(10'000);

  explicit Alone(int32_t self = 0, int32_t size = 3)
      : group(&clock, options(self, size)) {
    for (int32_t r = 0; r < size; ++r) {
      if (r == self) continue;
      auto link = std::make_unique<SpyLink>();
      link->order = &order;
      spies.push_back(link.get());
      group.attach(Rank(r), std::move(link));
    }
  }
  static engine::GroupOptions options(int32_t self, int32_t size) {
    engine::GroupOptions o;
    o.name = "test";
    o.self = Rank(self);
    o.size = size;
    o.operation.eager_bytes = 1000;
    return o;
  }
  // Delivers a frame of `rank` for `call`. The first frame contains the call. Returns
  // true if the frame is taken.
  bool say(Rank rank, const Call& call, FrameKind kind, size_t offset, uint32_t bytes,
           size_t total) {
    FrameHeader header;
    header.kind = kind;
    header.epoch = 1;
    header.seq = 1;
    header.offset = offset;
    header.payload_bytes = bytes;
    header.total_bytes = total;
    const auto encoded = collectives::encode(call);
    const auto first = offset == 0 ? encoded.view() : std::span<const std::byte>();
    header.extension_bytes = static_cast<uint8_t>(first.size());
    auto place = group.handler()->on_frame_begin(rank, header, first);
    if (!place || (bytes > 0 && *place == nullptr)) return false;
    group.handler()->on_frame(rank, header);
    return true;
  }
  // Sends `bytes` to each of the others: the same data to all, or different data.
  void give(CallKind kind, size_t bytes, bool is_same) {
    collectives::LocalCall local;
    for (int32_t r = 1; r < 3; ++r) {
      const size_t begin = is_same ? 0 : bytes * static_cast<size_t>(r);
      local.out_blocks.push_back({Rank(r), bytes_of(memory) + begin, bytes});
    }
    group.call(call_of(kind, bytes, Rank(0)), std::move(local), milliseconds(100));
  }
};

}  // namespace

TEST_CASE("a block that all members get states the number of its receivers") {
  const auto num_receivers = [](CallKind kind, bool is_same) {
    Alone alone;
    alone.give(kind, 50, is_same);
    std::vector<size_t> said;
    for (const SpyLink* spy : alone.spies)
      for (const auto& m : spy->sent) said.push_back(m.num_receivers);
    return said;
  };
  CHECK(num_receivers(CallKind::kBroadcast, true) == std::vector<size_t>{2, 2});
  CHECK(num_receivers(CallKind::kScatter, false) == std::vector<size_t>{1, 1});
}

TEST_CASE("a member begins with its next rank, so that no rank is the first for all") {
  for (const size_t bytes : {100u, 1001u}) {
    Alone alone(1, 4);
    collectives::LocalCall local;
    for (const int32_t r : {0, 2, 3}) {
      local.out_blocks.push_back({Rank(r), bytes_of(alone.memory), bytes});
      local.in_blocks.push_back({Rank(r), bytes_of(alone.memory) + 5000, bytes});
    }
    alone.group.call(call_of(CallKind::kAlltoall, 0), std::move(local),
                     milliseconds(100));
    const auto& to = alone.spies;  // ranks 0, 2 and 3
    std::vector<const SpyLink*> expected = {to[1], to[2], to[0]};
    if (bytes > 1000) expected.insert(expected.begin(), {to[0], to[2], to[1]});
    CHECK(alone.order == expected);
  }
}

TEST_CASE(
    "a member that reads our memory gets a large block in one piece, when it asks") {
  Alone alone;
  alone.spies[0]->is_reader = true;
  alone.give(CallKind::kScatter, 3000, false);
  CHECK(alone.spies[0]->sent.empty());
  REQUIRE(alone.spies[1]->sent.size() == 1);
  CHECK(alone.spies[1]->sent[0].bytes == 1000);
  CHECK(alone.spies[1]->sent[0].header.total_bytes == 3000);
  for (const size_t i : {0u, 1u}) {
    CHECK(alone.say(Rank(static_cast<int32_t>(i) + 1),
                    call_of(CallKind::kScatter, 3000, Rank(0)), FrameKind::kReady, 0, 0,
                    3000));
    const auto& last = alone.spies[i]->sent.back();
    CHECK(last.header.offset == (i == 0 ? 0 : 1000));
    CHECK(last.data == bytes_of(alone.memory) + 3000 * (i + 1) + last.header.offset);
    CHECK(last.bytes == 3000 - last.header.offset);
  }
}

TEST_CASE("no member may send more than the beginning of a block without a request") {
  const auto say = [](Alone& alone, size_t offset, uint32_t bytes) {
    return alone.say(Rank(1), call_of(CallKind::kGather, 3000, Rank(0)),
                     FrameKind::kData, offset, bytes, 3000);
  };
  for (const uint32_t bytes : {999u, 1000u, 1001u}) {
    Alone at_once;
    CHECK(say(at_once, 0, bytes) == (bytes <= 1000));
    Alone in_two;
    CHECK(say(in_two, 0, 600));
    CHECK(say(in_two, 600, bytes - 600) == (bytes <= 1000));
  }
}

TEST_CASE(
    "an unexpected block ends the call, also if it arrives before the call is made") {
  for (const bool has_called : {false, true}) {
    Alone alone;
    const Call call = call_of(CallKind::kBroadcast, 100, Rank(1));
    const auto say = [&] { alone.say(Rank(2), call, FrameKind::kData, 0, 50, 100); };
    if (!has_called) say();
    Status status;
    collectives::LocalCall local;
    local.in_blocks.push_back({Rank(1), bytes_of(alone.memory), 100});
    local.on_done = [&](const Status& s, const collectives::Outcome&) { status = s; };
    alone.group.call(call, std::move(local), milliseconds(100));
    if (has_called) say();
    CHECK(status.message().find("rank 2 sends 100 bytes where rank 0 expects 0") !=
          std::string::npos);
  }
}

TEST_CASE("a time-out names a member that has only the beginning of a block") {
  Cluster cluster(options_of(2));
  const Call call = call_of(CallKind::kBroadcast, 10'000, Rank(0));
  const auto root = cluster.broadcast(0, call, data_of(0, 10'000), milliseconds(100));
  REQUIRE(cluster.run_until_done({root}, milliseconds(200)));
  CHECK(root->status.code() == Code::kTimedOut);
  CHECK(root->outcome.missing == std::vector<Rank>{Rank(1)});
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/scatter_relay_broadcast.h"

#include <array>
#include <map>
#include <random>

#include "harness/catch.h"
#include "harness/cluster.h"
#include "harness/recording_handler.h"
#include "harness/spy_link.h"

using namespace aikido;
using namespace aikido::testing;
using transport::FrameHeader;
using transport::FrameKind;

namespace {

Call broadcast_of(size_t bytes, int32_t root = 0) {
  Call call;
  call.kind = CallKind::kBroadcast;
  call.dtype = DType::kUint8;
  call.count = bytes;
  call.root = Rank(root);
  return call;
}

Bytes data_of(size_t bytes) {
  return random_elements(DType::kUint8, bytes, bytes);
}

// Broadcasts are relayed from 1001 bytes on, in pieces of 256 bytes.
Cluster cluster_of(int32_t size) {
  return Cluster({.size = size, .chunk_bytes = 256, .eager_bytes = 1000});
}

AnswerPtr call(Cluster& cluster, const Call& call, int32_t rank,
               Duration timeout = milliseconds(10'000)) {
  const bool is_root = Rank(rank) == call.root;
  return cluster.broadcast(rank, call,
                           is_root ? data_of(call.count) : Bytes(call.count), timeout);
}

void check_all(Cluster& cluster, const std::vector<AnswerPtr>& answers, size_t bytes) {
  REQUIRE(cluster.run_until_done(answers, milliseconds(20'000)));
  for (const auto& a : answers) {
    INFO(a->status.message());
    REQUIRE(a->is_ok());
    REQUIRE(a->output == data_of(bytes));
  }
  cluster.run_idle();
  for (const auto& a : answers) {
    REQUIRE(a->times == 1);
    REQUIRE(a->memory_is_free);
    REQUIRE(a->memory_is_untouched());
  }
}

// Makes the calls of these ranks, in this order.
std::vector<AnswerPtr> call_all(Cluster& cluster, const std::vector<int32_t>& ranks,
                                const Call& its,
                                Duration timeout = milliseconds(10'000)) {
  std::vector<AnswerPtr> answers;
  for (const int32_t r : ranks) answers.push_back(call(cluster, its, r, timeout));
  return answers;
}

// Counts the bytes of data that each rank sends.
void count_sent(Cluster& cluster, std::map<int32_t, size_t>& sent) {
  cluster.network.set_tap([&sent](Rank from, Rank, const FrameHeader& header, auto at) {
    if (header.kind == FrameKind::kData) sent[from.value] += header.payload_bytes;
    return at;
  });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every member gets the root's bytes, for any order and time of the calls") {
  std::mt19937 random(0);
  for (int run = 0; run < 60; ++run) {
    const auto size = static_cast<int32_t>(3 + random() % 5);
    const size_t bytes = 1001 + random() % 20'000;
    const auto root = static_cast<int32_t>(random() % static_cast<unsigned>(size));
    Cluster cluster = cluster_of(size);
    cluster.set_all_delays(milliseconds(1));
    cluster.set_all_rates(100'000 + random() % 1'000'000);
    std::vector<int32_t> order;
    for (int32_t r = 0; r < size; ++r) order.push_back(r);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<AnswerPtr> answers;
    for (const int32_t r : order) {
      answers.push_back(call(cluster, broadcast_of(bytes, root), r));
      cluster.run_for(milliseconds(random() % 10));
    }
    INFO("run " << run);
    check_all(cluster, answers, bytes);
  }
}

TEST_CASE("the root sends all data once, and the others pass it on") {
  constexpr size_t kBytes = 60'000;
  Cluster cluster = cluster_of(4);
  cluster.set_all_rates(1'000'000);
  std::map<int32_t, size_t> sent;
  count_sent(cluster, sent);
  auto answers = call_all(cluster, {1, 2, 3}, broadcast_of(kBytes));
  cluster.run_for(milliseconds(1));
  answers.push_back(call(cluster, broadcast_of(kBytes), 0));
  check_all(cluster, answers, kBytes);
  CHECK(sent[0] == kBytes);
  for (const int32_t r : {1, 2, 3}) {
    CHECK(sent[r] > kBytes / 2);
    CHECK(sent[r] < kBytes);
  }
}

TEST_CASE(
    "a late caller gets all data from the root, and no other member waits for it") {
  constexpr size_t kBytes = 60'000;
  Cluster cluster = cluster_of(4);
  cluster.set_all_rates(1'000'000);
  std::map<int32_t, size_t> sent;
  count_sent(cluster, sent);
  auto answers = call_all(cluster, {0, 1, 2}, broadcast_of(kBytes));
  cluster.run_for(milliseconds(1000));
  CHECK_FALSE(answers[0]->is_done());
  CHECK(answers[1]->is_ok());
  CHECK(answers[2]->is_ok());
  const auto before = sent;
  answers.push_back(call(cluster, broadcast_of(kBytes), 3));
  check_all(cluster, answers, kBytes);
  CHECK(sent[0] == before.at(0) + kBytes);
  CHECK(sent[1] == before.at(1));
}

TEST_CASE("a relay that has passed on all its data may leave") {
  constexpr size_t kBytes = 20'000;
  Cluster cluster = cluster_of(4);
  cluster.set_all_rates(1'000'000);
  // Data for rank 3 is on its way for long.
  for (const int32_t r : {0, 1, 2})
    cluster.network.set_delay(Rank(r), Rank(3), milliseconds(100));
  auto answers = call_all(cluster, {3, 1, 2, 0}, broadcast_of(kBytes));
  const std::vector<AnswerPtr> others(answers.begin() + 1, answers.end());
  REQUIRE(cluster.run_until_done(others, milliseconds(5000)));
  REQUIRE_FALSE(answers[0]->is_done());
  for (const int32_t r : {0, 1, 2}) {
    cluster.group(r).leave();
    cluster.run_for(milliseconds(1));
    cluster.group(r).close_links();
  }
  REQUIRE(cluster.run_until_done(answers, milliseconds(5000)));
  for (const auto& a : answers) CHECK(a->status.message().empty());
  CHECK(answers[0]->output == data_of(kBytes));
}

TEST_CASE(
    "a member that leaves during a broadcast ends the call for all, with its name") {
  for (const int32_t who : {0, 2}) {
    Cluster cluster = cluster_of(4);
    cluster.set_all_rates(100'000);
    auto answers = call_all(cluster, {0, 1, 2, 3}, broadcast_of(60'000));
    cluster.run_for(milliseconds(100));
    cluster.group(who).leave();
    cluster.run_for(milliseconds(150));
    for (int32_t r = 0; r < 4; ++r) {
      const auto& a = answers[static_cast<size_t>(r)];
      INFO("rank " << r << " without rank " << who << ": " << a->status.message());
      REQUIRE(a->is_done());
      if (r == who) continue;
      CHECK(has(a->status.message(), concat("rank ", who, " has left")));
    }
  }
}

TEST_CASE("a member that is done is not missed, however long the others wait") {
  ClusterOptions options = with_heartbeats(4);
  options.chunk_bytes = 256;
  options.eager_bytes = 1000;
  Cluster cluster(options);
  cluster.set_all_rates(1'000'000);
  auto answers = call_all(cluster, {0, 1, 2}, broadcast_of(20'000));
  cluster.run_for(milliseconds(100));
  REQUIRE(answers[1]->is_ok());
  // Silence of a member that has its bytes does not end the call of the root.
  cluster.stop(1, milliseconds(200));
  cluster.run_for(milliseconds(100));
  CHECK_FALSE(answers[0]->is_done());
  answers.push_back(call(cluster, broadcast_of(20'000), 3));
  check_all(cluster, answers, 20'000);
}

TEST_CASE("a relay that still sends names the member that does not take the data") {
  Cluster cluster = cluster_of(3);
  cluster.set_all_rates(1'000'000);
  cluster.network.set_rate(Rank(1), Rank(2), 1000);
  auto answers = call_all(cluster, {2, 0, 1}, broadcast_of(20'000), milliseconds(1000));
  cluster.run_for(milliseconds(1500));
  REQUIRE(answers[2]->is_done());
  INFO(answers[2]->status.message());
  CHECK(has(answers[2]->status.message(), "rank"));
  CHECK(answers[2]->outcome.missing == std::vector<Rank>{Rank(2)});
}

TEST_CASE("a relay that dies ends the call for all, with its name") {
  Cluster cluster = cluster_of(4);
  cluster.set_all_rates(100'000);
  auto answers = call_all(cluster, {1, 2, 3, 0}, broadcast_of(60'000));
  cluster.run_for(milliseconds(100));
  cluster.kill(2);
  cluster.run_for(milliseconds(10));
  for (const size_t i : {0u, 2u, 3u}) {
    REQUIRE(answers[i]->is_done());
    CHECK(has(answers[i]->status.message(), "rank 2"));
  }
}

TEST_CASE("a relay that stands still is among the named members") {
  Cluster cluster = cluster_of(4);
  cluster.set_all_rates(100'000);
  auto answers =
      call_all(cluster, {1, 2, 3, 0}, broadcast_of(60'000), milliseconds(2000));
  cluster.run_for(milliseconds(100));
  cluster.stop(2, milliseconds(10'000));
  cluster.run_for(milliseconds(2500));
  REQUIRE(answers[0]->is_done());
  INFO(answers[0]->status.message());
  CHECK(answers[0]->status.code() == Code::kTimedOut);
  CHECK(has(answers[0]->status.message(), "2"));
}

TEST_CASE("a member that waits for a root that has not called names the root only") {
  Cluster cluster = cluster_of(4);
  auto answers = call_all(cluster, {1, 2}, broadcast_of(60'000), milliseconds(2000));
  cluster.run_for(milliseconds(2500));
  REQUIRE(answers[0]->is_done());
  INFO(answers[0]->status.message());
  CHECK(has(answers[0]->status.message(), "rank 0"));
  CHECK_FALSE(has(answers[0]->status.message(), "rank 3"));
}

TEST_CASE("members that disagree about the root or the size get an error") {
  for (const bool is_size : {false, true}) {
    Cluster cluster = cluster_of(3);
    std::vector<AnswerPtr> answers;
    answers.push_back(call(cluster, broadcast_of(5000), 0));
    answers.push_back(call(cluster, broadcast_of(5000), 1));
    answers.push_back(
        call(cluster, is_size ? broadcast_of(6000) : broadcast_of(5000, 1), 2));
    cluster.run_for(milliseconds(1000));
    for (const auto& a : answers) {
      REQUIRE(a->is_done());
      CHECK(a->status.code() == Code::kInvalidArgument);
    }
  }
}

TEST_CASE("an impossible report of a relay fails the call") {
  for (const bool is_relay : {true, false}) {
    Cluster cluster = cluster_of(3);
    cluster.set_all_rates(1'000'000);
    auto answers = call_all(cluster, {0, 1}, broadcast_of(5000));
    cluster.run_for(milliseconds(1));
    FrameHeader header;
    header.kind = FrameKind::kData;
    header.epoch = 1;
    header.seq = 1;
    header.total_bytes = 4999;
    const Rank from(is_relay ? 1 : 2);
    CHECK(cluster.group(0).handler()->on_frame_begin(from, header, {}));
    cluster.group(0).handler()->on_frame(from, header);
    REQUIRE(answers[0]->is_done());
    CHECK(has(answers[0]->status.message(), "passed on what it cannot have"));
    CHECK(answers[0]->status.code() == Code::kProtocol);
  }
}

// ---- the data on each link

namespace {

// Frames that a root sends to ranks 1 to n - 1, by rank, after they have called.
// `readers` marks the ranks that read the root's memory.
std::vector<std::vector<transport::OutMessage>> sent_by_root(
    size_t bytes, const std::vector<bool>& readers) {
  ManualClock clock;
  engine::GroupOptions options;
  options.name = "test";
  options.self = Rank(0);
  options.size = static_cast<int32_t>(readers.size()) + 1;
  options.operation.eager_bytes = 1000;
  engine::Group group(&clock, options);
  std::vector<SpyLink*> spies;
  for (size_t i = 0; i < readers.size(); ++i) {
    auto link = std::make_unique<SpyLink>();
    link->is_reader = readers[i];
    spies.push_back(link.get());
    group.attach(Rank(static_cast<int32_t>(i) + 1), std::move(link));
  }
  const Call call = broadcast_of(bytes);
  for (int32_t r = 1; r < options.size; ++r) {
    FrameHeader header;
    header.kind = FrameKind::kReady;
    header.epoch = 1;
    header.seq = 1;
    header.total_bytes = bytes;
    const auto encoded = collectives::encode(call);
    header.extension_bytes = static_cast<uint8_t>(encoded.size);
    CHECK(group.handler()->on_frame_begin(Rank(r), header, encoded.view()));
    group.handler()->on_frame(Rank(r), header);
  }
  Bytes memory(bytes);
  collectives::LocalCall local;
  for (int32_t r = 1; r < options.size; ++r)
    local.out_blocks.push_back({Rank(r), bytes_of(memory), bytes});
  group.call(call, std::move(local), milliseconds(1000));
  std::vector<std::vector<transport::OutMessage>> sent;
  for (const SpyLink* spy : spies) {
    sent.emplace_back();
    for (const auto& m : spy->sent)
      if (m.header.kind == FrameKind::kData) sent.back().push_back(m);
  }
  return sent;
}

}  // namespace

TEST_CASE(
    "members that read our memory get all data at once, and so does a single other "
    "member") {
  for (const bool last : {true, false}) {
    const auto sent = sent_by_root(300'000, {true, true, last});
    for (const auto& to : sent) {
      REQUIRE(to.size() == 1);
      CHECK(to[0].bytes == 300'000);
      CHECK(to[0].num_receivers == (last ? 3 : 2));
    }
  }
}

TEST_CASE("pieces go to the members that do not read our memory") {
  const auto sent = sent_by_root(300'000, {false, true, false});
  REQUIRE(sent[1].size() == 1);
  CHECK(sent[1][0].bytes == 300'000);
  CHECK(sent[1][0].num_receivers == 1);
  for (const size_t i : {0u, 2u}) {
    REQUIRE_FALSE(sent[i].empty());
    CHECK(sent[i][0].bytes < 100'000);
    // Bit 3 for rank 3, or bit 1 for rank 1, behind the call.
    const auto first = sent[i][0].extension[sent[i][0].extension_bytes - 8u];
    CHECK(first == std::byte(i == 0 ? 8 : 2));
  }
}

// ---- members that break the protocol

namespace {

// Rank 1 of three ranks, which has called a broadcast of rank 0. The test plays the
// other ranks.
struct Receiver {
  static constexpr size_t kBytes = 2000;
  ManualClock clock;
  // Memory of the call, which outlives the group, because the end of the group may
  // write to it.
  Bytes memory = Bytes(kBytes);
  Status status;
  bool is_done = false;
  engine::Group group;
  std::array<SpyLink*, 3> spies{};

  Receiver() : group(&clock, options()) {
    for (const int32_t r : {0, 2}) {
      auto link = std::make_unique<SpyLink>();
      spies[static_cast<size_t>(r)] = link.get();
      group.attach(Rank(r), std::move(link));
    }
  }
  static engine::GroupOptions options() {
    engine::GroupOptions o;
    o.name = "test";
    o.self = Rank(1);
    o.size = 3;
    o.operation.eager_bytes = 1000;
    return o;
  }
  void call() {
    collectives::LocalCall local;
    local.in_blocks.push_back({Rank(0), bytes_of(memory), kBytes});
    local.on_done = [this](const Status& s, const collectives::Outcome&) {
      status = s;
      is_done = true;
    };
    group.call(broadcast_of(kBytes), std::move(local), milliseconds(1000));
  }
  // Delivers a frame whose extension is the call and `mask`, in whole words.
  void say(int32_t from, FrameKind kind, size_t begin, size_t end,
           std::vector<uint8_t> mask = {}) {
    FrameHeader header;
    header.kind = kind;
    header.epoch = 1;
    header.seq = 1;
    header.offset = begin;
    header.payload_bytes = static_cast<uint32_t>(end - begin);
    header.total_bytes = kBytes;
    std::vector<std::byte> extension;
    if (begin < end) {
      const auto encoded = collectives::encode(broadcast_of(kBytes));
      extension.assign(encoded.view().begin(), encoded.view().end());
      mask.resize((mask.size() + 7) / 8 * 8);
      for (const uint8_t byte : mask) extension.push_back(std::byte(byte));
    }
    header.extension_bytes = static_cast<uint8_t>(extension.size());
    const auto place = group.handler()->on_frame_begin(Rank(from), header, extension);
    if (place) group.handler()->on_frame(Rank(from), header);
  }
  size_t num_passed() const {
    size_t num = 0;
    for (const auto& m : spies[2]->sent) num += m.header.kind == FrameKind::kData;
    return num;
  }
};

}  // namespace

TEST_CASE(
    "a relay passes a piece on to the members that it names, and tells the root") {
  Receiver r;
  r.call();
  r.say(0, FrameKind::kData, 0, 500, {0b100});
  REQUIRE(r.num_passed() == 1);
  const auto passed = r.spies[2]->sent.back();
  CHECK(passed.header.offset == 0);
  CHECK(passed.bytes == 500);
  CHECK(r.spies[0]->sent.back().header.kind == FrameKind::kReady);
  passed.owner->on_sent(passed.token);
  CHECK(r.spies[0]->sent.back().header.kind == FrameKind::kData);
  CHECK(r.spies[0]->sent.back().header.total_bytes == 500);
  // A piece from another relay, or a missed piece, is not passed on, and the root is
  // not told.
  const size_t num_told = r.spies[0]->sent.size();
  r.say(2, FrameKind::kData, 500, 900);
  r.say(0, FrameKind::kData, 900, 1000);
  CHECK(r.num_passed() == 1);
  CHECK(r.spies[0]->sent.size() == num_told);
  CHECK_FALSE(r.is_done);
}

TEST_CASE("impossible pieces fail the call") {
  const auto check = [](const char* what, const auto& say) {
    INFO(what);
    Receiver r;
    r.call();
    say(r);
    REQUIRE(r.is_done);
    CHECK(r.status.code() == Code::kProtocol);
    CHECK(r.num_passed() == 0);
  };
  check("for ourselves",
        [](Receiver& r) { r.say(0, FrameKind::kData, 0, 9, {0b010}); });
  check("for the root", [](Receiver& r) { r.say(0, FrameKind::kData, 0, 9, {0b001}); });
  check("for nobody that there is",
        [](Receiver& r) { r.say(0, FrameKind::kData, 0, 9, {0b1000}); });
  check("a long mask", [](Receiver& r) {
    r.say(0, FrameKind::kData, 0, 9, std::vector<uint8_t>(9, 4));
  });
  check("not of the root", [](Receiver& r) { r.say(2, FrameKind::kData, 0, 9, {1}); });
  check("twice", [](Receiver& r) {
    r.say(0, FrameKind::kData, 0, 9);
    r.say(2, FrameKind::kData, 8, 20);
  });
}

TEST_CASE("received bytes are not overwritten") {
  Receiver r;
  r.call();
  r.say(0, FrameKind::kData, 0, 500);
  FrameHeader header;
  header.kind = FrameKind::kData;
  header.epoch = 1;
  header.seq = 1;
  header.offset = 400;
  header.payload_bytes = 200;
  header.total_bytes = Receiver::kBytes;
  auto place = r.group.handler()->on_frame_begin(Rank(2), header, {});
  REQUIRE(place);
  CHECK(*place == nullptr);
  CHECK(r.is_done);
}

TEST_CASE("a frame of another kind fails the call") {
  Receiver r;
  r.call();
  r.say(0, FrameKind::kResult, 0, 9);
  CHECK(r.is_done);
  CHECK(r.status.code() == Code::kInvalidArgument);
}

TEST_CASE("data that arrives before the call is made fails the call") {
  Receiver r;
  r.say(0, FrameKind::kData, 0, 500, {0b100});
  r.call();
  CHECK(r.is_done);
  CHECK(r.status.code() == Code::kInvalidArgument);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Tests of a member with the right token that breaks the protocol. Its link is lost or
// the call fails with an error, and it can take only a bounded part of our memory.

#include "engine/group.h"

#include <limits>

#include "harness/catch.h"
#include "harness/cluster.h"
#include "harness/recording_handler.h"

using namespace aikido;
using namespace aikido::testing;
using transport::FrameKind;

namespace {

constexpr uint64_t kWindow = 16 << 10;

// Rank 0 of a group of three. The test plays the other ranks.
struct Hostile {
  ManualClock clock;
  transport::LoopbackNetwork network{&clock, 256};
  std::array<RecordingHandler, 3> far;
  std::array<std::unique_ptr<transport::Link>, 3> links;
  std::unique_ptr<engine::Group> group;
  std::vector<std::shared_ptr<std::vector<std::byte>>> said;  // until it is sent

  explicit Hostile(uint64_t largest_call_bytes = uint64_t{1} << 60) {
    engine::GroupOptions o;
    o.name = "test";
    o.self = Rank(0);
    o.size = 3;
    o.operation = {256, 64, 64, kWindow};
    o.log_bytes = kWindow;
    o.pool_bytes = 0;
    o.largest_call_bytes = largest_call_bytes;
    group = std::make_unique<engine::Group>(&clock, o);
    for (int32_t r = 1; r < 3; ++r) {
      const auto i = static_cast<size_t>(r);
      auto [near, theirs] =
          network.connect(Rank(0), group->handler(), Rank(r), &far[i]);
      group->attach(Rank(r), std::move(near));
      links[i] = std::move(theirs);
    }
  }

  struct Said {
    FrameKind kind = FrameKind::kContrib;
    uint64_t seq = 1;
    size_t bytes = 0;
    std::optional<Call> call = {};
    uint16_t shard = 0;
    uint64_t offset = 0;
    std::optional<uint64_t> total = {};  // default: offset and bytes
    int32_t tag = 0;
    std::optional<std::string> text = {};
    std::optional<uint8_t> mask = {};   // a result header behind the call
    std::optional<double> weight = {};  // behind the call and the header
    uint32_t view = 0;                  // 1 for a call that may skip
  };
  void say(const Said& s, size_t from = 1) {
    transport::OutMessage m;
    auto data = std::make_shared<std::vector<std::byte>>(s.bytes, std::byte{1});
    if (s.text) *data = {bytes_of(*s.text), bytes_of(*s.text) + s.text->size()};
    m.header.kind = s.kind;
    m.header.seq = s.seq;
    m.header.view = s.view;
    m.header.shard = s.shard;
    m.header.tag = s.tag;
    m.header.offset = s.offset;
    m.header.total_bytes = s.total.value_or(s.offset + data->size());
    if (s.call) {
      const auto encoded = collectives::encode(*s.call);
      std::copy_n(encoded.bytes.begin(), encoded.size, m.extension.begin());
      m.extension_bytes = static_cast<uint8_t>(encoded.size);
      if (s.mask) {
        m.extension_bytes = static_cast<uint8_t>(encoded.size + 9);
        m.extension[encoded.size + 8] = static_cast<std::byte>(*s.mask);
      }
      if (s.weight) {
        std::memcpy(m.extension.data() + m.extension_bytes, &*s.weight, 8);
        m.extension_bytes = static_cast<uint8_t>(m.extension_bytes + 8);
      }
    }
    m.data = data->data();
    m.bytes = data->size();
    said.push_back(std::move(data));
    links[from]->send(std::move(m));
    network.pump();
  }
  static const std::byte* bytes_of(const std::string& text) {
    return reinterpret_cast<const std::byte*>(text.data());
  }

  AnswerPtr allreduce(const Call& call) {
    auto answer = std::make_shared<Answer>();
    answer->memory = std::make_shared<Bytes>(call.bytes());
    collectives::LocalCall local;
    local.input = local.output = testing::bytes_of(*answer->memory);
    local.on_done = [answer](const Status& status, const collectives::Outcome&) {
      ++answer->times;
      answer->status = status;
    };
    local.keep_alive = answer->memory;
    group->call(call, std::move(local), milliseconds(1000));
    network.pump();
    return answer;
  }

  std::string lost() const { return group->failure().message(); }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
void check_failed(const AnswerPtr& answer, const std::string& part) {
  REQUIRE(answer->times == 1);
  INFO(answer->status.message());
  CHECK(has(answer->status.message(), part));
}
void check_lost(const Hostile& h, const std::string& part) {
  INFO(h.lost());
  CHECK(has(h.lost(), "rank 1 is lost to group \"test\""));
  CHECK(has(h.lost(), part));
  CHECK(h.group->failure().code() == Code::kProtocol);
}

// One shard, which rank 0 owns.
const Call kSmall = allreduce_call(DType::kFloat32, 10);
// Three shards, one for each rank.
const Call kLarge = allreduce_call(DType::kFloat32, 48);

}  // namespace

TEST_CASE("a contribution of another size than agreed fails the call") {
  for (const size_t bytes : {size_t{0}, size_t{39}, size_t{41}, size_t{100'000}}) {
    Hostile h;
    const auto answer = h.allreduce(kSmall);
    h.say({.bytes = bytes, .call = kSmall});
    check_failed(answer,
                 concat("rank 1 sends ", bytes, " bytes where rank 0 expects 40"));
    CHECK(h.lost().empty());
    // The other members are told.
    CHECK(h.far[2].kinds.back() == FrameKind::kAbort);
  }
}

TEST_CASE("a second contribution fails the call, and is not added") {
  Hostile h;
  const auto answer = h.allreduce(kSmall);
  h.say({.bytes = 40, .call = kSmall});
  CHECK_FALSE(answer->is_done());
  h.say({.bytes = 40, .call = kSmall});
  check_failed(answer, "rank 1 sends 40 bytes");
}

TEST_CASE("a result for the shard of another owner fails the call") {
  for (const int shard : {0, 2, 3, 65535}) {
    Hostile h;
    const auto answer = h.allreduce(kLarge);
    h.say({.kind = FrameKind::kResult,
           .bytes = 64,
           .call = kLarge,
           .shard = static_cast<uint16_t>(shard)});
    check_failed(answer, "rank 1 sends 64 bytes where rank 0 expects 0");
  }
}

TEST_CASE("a contribution or result without a proper weight fails the call") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool skips : {false, true}) {
    Call small = kSmall, large = kLarge;
    for (Call* call : {&small, &large}) {
      call->op = ReduceOp::kAvg;
      call->is_weighted = true;
      if (skips) call->policy.kind = straggler::Kind::kSkip;
    }
    const std::optional<uint8_t> mask =
        skips ? std::optional<uint8_t>(6) : std::nullopt;
    // The sum of weights of 1e308 would not be finite.
    for (const std::optional<double> weight :
         {std::optional<double>(), std::optional(-1.0), std::optional(nan),
          std::optional(infinity), std::optional(1e308)}) {
      Hostile giving;
      const auto given = giving.allreduce(small);
      giving.say({.bytes = 40, .call = small, .weight = weight, .view = 1});
      check_failed(given, "weight");
      if (weight == 1e308) continue;
      Hostile telling;
      const auto told = telling.allreduce(large);
      telling.say({.kind = FrameKind::kResult,
                   .bytes = 64,
                   .call = large,
                   .shard = 1,
                   .mask = mask,
                   .weight = weight,
                   .view = 1});
      check_failed(told, "weight");
    }
  }
}

TEST_CASE("a weighted call that no member can make ends the link") {
  for (const int which : {0, 1, 2}) {
    Call call = kSmall;
    call.is_weighted = true;
    if (which == 1) call.op = ReduceOp::kAvg;
    if (which == 1) call.dtype = DType::kInt32;
    if (which == 2) call.kind = CallKind::kBarrier;
    Hostile h;
    h.say({.bytes = 40, .call = call, .weight = 1.0});
    check_lost(h, "weight");
  }
}

TEST_CASE("a frame of no hop, or of a hop between other ranks, fails the call") {
  Call ring = allreduce_call(DType::kFloat32, 48);  // 64 bytes a shard, from rank 2
  ring.algorithm = Algorithm::kRing;
  using Said = Hostile::Said;
  const auto contrib = FrameKind::kContrib, result = FrameKind::kResult;
  for (const auto& [from, said] :
       {std::pair{1, Said{.kind = contrib, .bytes = 64}},
        {2, Said{.kind = contrib, .bytes = 60}},
        {2, Said{.kind = contrib, .bytes = 6, .total = 64}},
        {2, Said{.kind = contrib, .bytes = 32, .offset = 32}},
        {2, Said{.kind = result, .bytes = 64}},
        {2, Said{.kind = contrib, .bytes = 64, .shard = 2}},
        {2, Said{.kind = contrib, .bytes = 64, .shard = 4}},
        {2, Said{.kind = result, .bytes = 64, .shard = 4}},
        {2, Said{.kind = result, .bytes = 64, .shard = 65535}}}) {
    for (const bool is_called : {true, false}) {
      Hostile h;
      AnswerPtr answer;
      if (is_called) answer = h.allreduce(ring);
      Said frame = said;
      frame.call = ring;
      h.say(frame, static_cast<size_t>(from));
      if (!is_called) answer = h.allreduce(ring);
      check_failed(answer, concat("rank ", from, " sends"));
      CHECK(h.lost().empty());
    }
  }
  // No member can have a result before all have called.
  Hostile h;
  h.say({.kind = result, .bytes = 64, .call = ring, .shard = 2}, 2);
  check_failed(h.allreduce(ring), "rank 2 sends 64 bytes where rank 0 expects 0");
}

TEST_CASE("a second contribution to a hop fails the call, and is not added") {
  Call ring = allreduce_call(DType::kFloat32, 48);
  ring.algorithm = Algorithm::kRing;
  Hostile h;
  const auto answer = h.allreduce(ring);
  h.say({.bytes = 64, .call = ring}, 2);
  CHECK_FALSE(answer->is_done());
  h.say({.bytes = 64, .call = ring}, 2);
  check_failed(answer, "rank 2 sends 64 bytes where rank 0 expects 64");
}

TEST_CASE("a message without its beginning ends the link") {
  Hostile h;
  h.say({.bytes = 20, .offset = 20});
  check_lost(h, "a message without its beginning");
  check_failed(h.allreduce(kSmall), "rank 1 is lost");
}

TEST_CASE("a frame of a call that is far ahead ends the link") {
  for (const auto kind : {FrameKind::kContrib, FrameKind::kResult, FrameKind::kReady,
                          FrameKind::kData, FrameKind::kAbort}) {
    for (const uint64_t seq : {uint64_t{1} << 32, ~uint64_t{0}}) {
      Hostile h;
      h.say({.kind = kind, .seq = seq, .call = kSmall});
      check_lost(h, concat("a frame of collective ", seq, ", 0 are called here"));
    }
  }
}

TEST_CASE("the number of failures that are kept for calls not made here is bounded") {
  Hostile h;
  for (uint64_t seq = 1; seq <= 20'000 && h.lost().empty(); ++seq)
    h.say({.kind = FrameKind::kAbort, .seq = seq, .text = "no"});
  check_lost(h, "a frame of collective 16385, 0 are called here");
}

TEST_CASE("an abort with an absurd text becomes a readable sentence") {
  Hostile h;
  const auto answer = h.allreduce(kSmall);
  std::string text = "\x1b]0;\xff\x01 so much for that";
  text.resize(100'000, 'x');
  h.say({.kind = FrameKind::kAbort, .shard = 999, .tag = 77, .text = text});
  REQUIRE(answer->times == 1);
  CHECK(answer->status.code() == Code::kAborted);
  CHECK(answer->status.culprit() == kNoRank);
  CHECK(answer->status.message().substr(0, 25) == "?]0;?? so much for thatxx");
  CHECK(answer->status.message().size() == 1024);
}

TEST_CASE("a member that exceeds the window for calls is lost") {
  Hostile h;
  uint64_t seq = 1;
  for (; seq < 1000 && h.lost().empty(); ++seq)
    h.say({.seq = seq, .bytes = 40, .call = kSmall});
  check_lost(h, "more than its window for collectives that are not called here");
  CHECK(seq < 2 + 2 * kWindow / (1024 + 40) + 2);
  // A member that sends no data is lost, too, and results are counted separately.
  Hostile asking;
  for (seq = 1; seq < 100 && asking.lost().empty(); ++seq)
    asking.say({.kind = FrameKind::kReady, .seq = seq, .call = kSmall});
  check_lost(asking, "more than its window");
  Hostile committing;
  Call call = kLarge;
  call.policy.kind = straggler::Kind::kSkip;
  for (seq = 1; seq < 100 && committing.lost().empty(); ++seq)
    committing.say({.kind = FrameKind::kResult,
                    .seq = seq,
                    .bytes = 64,
                    .call = call,
                    .shard = 1,
                    .mask = 6});
  check_lost(committing, "more than its window");
}

TEST_CASE("a call that is only announced takes no memory, and its size is limited") {
  const Call huge = allreduce_call(DType::kFloat32, uint64_t{1} << 48);
  Hostile h;
  h.say({.call = huge, .total = huge.bytes() / 3 / 64 * 64 + 64});
  check_failed(h.allreduce(kSmall), "rank 1 calls " + describe(huge));
  CHECK(h.lost().empty());
  Hostile sane(1 << 20);
  sane.say({.call = huge, .total = 64});
  check_lost(sane, "more than 1048576");
}

TEST_CASE("the number of calls that fail before they are made here is bounded") {
  Hostile h;
  for (const size_t r : {size_t{1}, size_t{2}}) {  // by their own report
    h.far[r].num_called = 1 << 30;
    h.say({.kind = FrameKind::kHeartbeat}, r);
  }
  uint64_t seq = 1;
  for (; seq < 100'000 && h.lost().empty(); ++seq) {
    h.say({.seq = seq, .bytes = 40, .call = kSmall});
    h.say({.seq = seq, .bytes = 40, .call = kLarge});  // another call than before
    if (seq == 1) check_failed(h.allreduce(kSmall), "rank 1 calls");
  }
  check_lost(h, "too many policies, or failures ahead of our calls");
  CHECK(seq < 40'000);
  // A member that reports its calls is told of each failure, until there are too many.
  Hostile other;
  for (seq = 1; seq < 100'000 && other.lost().empty(); ++seq) {
    other.say({.seq = seq, .bytes = 40, .call = kSmall});
    other.say({.seq = seq, .bytes = 40, .call = kLarge});
  }
  CHECK(has(other.lost(), "it has not called for more than 16384 failed calls"));
}

TEST_CASE("the number of policies that only a peer has used is bounded") {
  Hostile h;
  Call call = kSmall;
  call.policy.kind = straggler::Kind::kSkip;
  uint32_t skips = 1;
  for (; skips < 2000 && h.lost().empty(); ++skips) {
    call.policy.max_consecutive_skips = skips;
    h.say({.seq = skips, .call = call, .total = 40});
    h.say({.kind = FrameKind::kAbort, .seq = skips});
  }
  check_lost(h, "too many policies, or failures ahead of our calls");
  CHECK(skips < 1100);
}

TEST_CASE("messages without a request must keep to the window") {
  Hostile h;
  uint64_t number = 1;
  for (; number < 1000 && h.lost().empty(); ++number)
    h.say({.kind = FrameKind::kP2pData, .seq = number, .bytes = 64});
  check_lost(h, "64 bytes unasked while");
  CHECK(number == 1 + kWindow / (64 + 256) + 1);
}

TEST_CASE("messages that need a request end the link if they come without one") {
  struct Case {
    std::vector<Hostile::Said> said;
    std::string part;
  };
  const std::vector<Case> cases = {
      {{{.kind = FrameKind::kP2pData, .bytes = 65}},
       "65 bytes unasked, the limit is 64"},
      {{{.kind = FrameKind::kP2pAnnounce, .total = uint64_t{1} << 50},
        {.kind = FrameKind::kP2pData, .bytes = 1, .total = uint64_t{1} << 50}},
       "sent message 1 before it was asked for it"},
      {{{.kind = FrameKind::kP2pAnnounce, .seq = 1 << 21}}, "message 2097152 comes"},
      {{{.kind = FrameKind::kP2pWithdraw, .seq = 1 << 21}}, "message 2097152 comes"},
      {{{.kind = FrameKind::kP2pData, .seq = 1 << 21}}, "message 2097152 comes"},
  };
  for (const Case& c : cases) {
    Hostile h;
    for (const auto& s : c.said) h.say(s);
    check_lost(h, c.part);
  }
}

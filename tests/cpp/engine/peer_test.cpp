// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/peer.h"

#include "harness/catch.h"
#include "harness/manual_clock.h"
#include "harness/recording_handler.h"
#include "harness/spy_link.h"
#include "transport/loopback_link.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;
using engine::Peer;

namespace {

// Rank 1 as rank 0 sees it.
struct Pair {
  ManualClock clock;
  LoopbackNetwork network{&clock, 256};
  RecordingHandler a, b;
  std::unique_ptr<Link> to_a;
  uint32_t epoch = 1;
  uint64_t acked = 0;
  Peer peer{&clock, &epoch, &a.num_called, &acked, 10 << 10, 10 << 10};

  Pair() {
    auto [to_b, back] = network.connect(Rank(0), &a, Rank(1), &b);
    peer.attach(std::move(to_b));
    to_a = std::move(back);
  }
  void run_for(Duration time) {
    for (const TimePoint end = clock.now() + time; clock.now() < end;) {
      network.pump();
      clock.advance(
          std::min<Duration>(end - clock.now(), std::chrono::milliseconds(1)));
    }
    network.pump();
  }
  size_t count(FrameKind kind) const {
    return static_cast<size_t>(std::count(b.kinds.begin(), b.kinds.end(), kind));
  }
};

}  // namespace

TEST_CASE("a peer is told once of any number of calls") {
  Pair pair;
  pair.peer.tell_called();
  pair.network.pump();
  CHECK(pair.b.kinds.empty());
  pair.a.num_called = 3;
  pair.peer.tell_called();
  pair.peer.tell_called();
  pair.network.pump();
  CHECK(pair.count(FrameKind::kCalled) == 1);
  CHECK(pair.b.last.called == 3);
  // Any frame that carries the number saves the notice.
  pair.a.num_called = 4;
  const auto data = pattern(10);
  pair.peer.send(message(1, data));
  pair.peer.tell_called();
  pair.network.pump();
  CHECK(pair.count(FrameKind::kCalled) == 1);
  CHECK(pair.b.last.called == 4);
}

TEST_CASE("a frame that goes at once tells the peer of calls") {
  ManualClock clock;
  uint32_t epoch = 1;
  uint64_t called = 3, acked = 0;
  Peer peer(&clock, &epoch, &called, &acked, 1000, 1000);
  const auto data = pattern(10);
  CHECK_FALSE(peer.send_at_once(message(1, data)));  // never connected
  auto owned = std::make_unique<SpyLink>();
  SpyLink& link = *owned;
  peer.attach(std::move(owned));
  CHECK_FALSE(peer.send_at_once(message(1, data)));
  peer.tell_called();
  REQUIRE(link.sent.size() == 1);
  link.sent[0].owner->on_sent(0);
  called = 4;
  link.takes_at_once = true;
  CHECK(peer.send_at_once(message(2, data)));
  peer.tell_called();
  CHECK(link.sent.size() == 1);
  CHECK(link.gone == std::vector<uint64_t>{2});
}

TEST_CASE("notices to a peer that takes nothing do not pile up") {
  Pair pair;
  pair.network.stall(Rank(0), Rank(1), pair.clock.now() + std::chrono::hours(1));
  for (int i = 0; i < 1000; ++i) {
    ++pair.a.num_called;
    pair.peer.tell_called();
    pair.peer.beat();
    pair.network.pump();
  }
  pair.clock.advance(std::chrono::hours(1));
  pair.network.pump();
  CHECK(pair.b.kinds.size() <= 2);
  CHECK(pair.b.last.called == 1000);
}

TEST_CASE("a notice of later calls follows a notice that is on its way") {
  Pair pair;
  pair.network.set_rate(Rank(0), Rank(1), 64);  // a notice takes a second
  pair.a.num_called = 1;
  pair.peer.tell_called();
  pair.network.pump();
  pair.a.num_called = 2;
  pair.peer.tell_called();
  for (int i = 0; i < 3; ++i) {
    pair.clock.advance(std::chrono::seconds(1));
    pair.network.pump();
  }
  CHECK(pair.count(FrameKind::kCalled) == 2);
  CHECK(pair.b.last.called == 2);
}

TEST_CASE("a peer that asks is told once when the operation is acknowledged") {
  Pair pair;
  pair.acked = 2;
  pair.peer.on_asked_acked(2);
  pair.network.pump();
  CHECK(pair.count(FrameKind::kCalled) == 1);
  pair.peer.on_asked_acked(4);
  pair.acked = 3;
  pair.peer.answer();
  pair.network.pump();
  CHECK(pair.count(FrameKind::kCalled) == 1);
  pair.acked = 5;
  pair.peer.answer();
  pair.peer.answer();
  pair.network.pump();
  CHECK(pair.count(FrameKind::kCalled) == 2);
  pair.peer.ask_acked(7);
  pair.network.pump();
  CHECK(pair.count(FrameKind::kAskAcked) == 1);
  CHECK(pair.b.last.seq == 7);
}

TEST_CASE("a peer that has made fewer calls gets no more than its window") {
  Pair pair;
  const auto data = pattern(1024);
  auto owner = std::make_shared<CountingOwner>();
  std::vector<MessageId> ids;
  for (uint64_t seq = 1; seq <= 10; ++seq) {
    auto m = message(seq, data, owner);
    m.header.kind = FrameKind::kContrib;
    ids.push_back(pair.peer.send(std::move(m)));
  }
  pair.network.pump();
  CHECK(owner->tokens == std::vector<uint32_t>{1, 2, 3, 4, 5});
  CHECK(pair.count(FrameKind::kAskCalled) == 1);
  CHECK_FALSE(pair.peer.is_drained());
  CHECK(pair.peer.cancel(ids[6]) == 1024);
  pair.network.pump();
  CHECK(owner->tokens.back() == 7);
  CHECK_FALSE(pair.peer.note_called(0));
  CHECK(pair.peer.note_called(2));
  pair.network.pump();
  CHECK(owner->tokens == std::vector<uint32_t>{1, 2, 3, 4, 5, 7, 6, 8});
  CHECK(pair.count(FrameKind::kAskCalled) == 2);
  pair.peer.note_over(4, true);
  pair.network.pump();
  CHECK(owner->tokens.back() == 9);
  // A message that is held back tells the peer of no calls.
  pair.a.num_called = 10;
  auto held = message(20, data, owner);
  held.header.kind = FrameKind::kContrib;
  pair.peer.send(std::move(held));
  pair.peer.tell_called();
  pair.network.pump();
  CHECK(pair.count(FrameKind::kCalled) == 1);
  CHECK(pair.b.last.called == 10);
  // Results, and data of calls that the peer has made, are not counted.
  auto result = message(30, data, owner);
  result.header.kind = FrameKind::kResult;
  pair.peer.send(std::move(result));
  pair.network.pump();
  CHECK(owner->tokens.back() == 30);
  pair.peer.set_lost(Status(Code::kPeerLost, "gone"));
  pair.to_a->close();
  pair.network.pump();
  CHECK(owner->tokens.size() == 12);
  CHECK(pair.peer.is_drained());
}

TEST_CASE("a link that is slower than the results gets one result at a time") {
  Pair pair;
  pair.network.set_rate(Rank(0), Rank(1), 1024);
  const auto data = pattern(1024);
  auto owner = std::make_shared<CountingOwner>();
  for (uint64_t seq = 1; seq <= 10; ++seq) {
    auto m = message(seq, data, owner);
    m.header.kind = FrameKind::kResult;
    pair.peer.send(std::move(m));
    pair.run_for(std::chrono::milliseconds(200));
  }
  // From result 2 on the peer checks if the link is done. Result 7 is the first that
  // waits.
  pair.run_for(std::chrono::seconds(60));
  CHECK(owner->tokens == std::vector<uint32_t>{1, 2, 3, 4, 5, 6});
  CHECK(pair.count(FrameKind::kAskCalled) == 1);
  CHECK_FALSE(pair.peer.is_drained());
  CHECK(pair.peer.note_called(7));
  pair.run_for(std::chrono::seconds(60));
  CHECK(owner->tokens.back() == 8);
  CHECK(pair.count(FrameKind::kAskCalled) == 2);
  // A member that leaves sends all that was held back.
  pair.peer.finish();
  pair.run_for(std::chrono::seconds(60));
  CHECK(owner->tokens.size() == 10);
  CHECK(pair.peer.is_drained());
}

TEST_CASE("a peer that asks is told when the call was made, whatever is on its way") {
  Pair pair;
  pair.a.num_called = 4;
  pair.peer.on_asked(5);
  pair.network.pump();
  CHECK(pair.b.kinds.empty());
  pair.peer.answer();
  pair.network.pump();
  CHECK(pair.b.kinds.empty());
  pair.a.num_called = 7;
  pair.peer.answer();
  pair.peer.answer();
  pair.network.pump();
  CHECK(pair.b.kinds == std::vector<FrameKind>{FrameKind::kCalled});
  CHECK(pair.b.last.called == 7);
  // A notice with the old number is on its way.
  pair.network.set_rate(Rank(0), Rank(1), 64);
  pair.peer.beat();
  pair.network.pump();
  pair.a.num_called = 8;
  pair.peer.on_asked(8);
  for (int i = 0; i < 3; ++i) {
    pair.clock.advance(std::chrono::seconds(1));
    pair.network.pump();
  }
  CHECK(pair.b.last.called == 8);
}

TEST_CASE("a peer that is given up is lost for the given reason") {
  Pair pair;
  CHECK_FALSE(pair.peer.end.given_up);
  pair.peer.give_up(Status(Code::kPeerLost, "enough"));
  pair.peer.give_up(Status(Code::kPeerLost, "enough again"));
  pair.network.pump();
  CHECK(pair.a.times_lost == 1);
  CHECK(pair.b.times_lost == 1);
  REQUIRE(pair.peer.end.given_up);
  CHECK(pair.peer.end.given_up->message() == "enough");
}

TEST_CASE("an abort arrives with its code, culprit and sentence") {
  Pair pair;
  Peer other(&pair.clock, &pair.epoch, &pair.b.num_called, &pair.acked, 1, 1);
  std::vector<Status> read;
  pair.b.on_end = [&](const FrameHeader& h) {
    const auto& text = pair.b.messages[h.seq];
    std::byte* place = *other.texts.place_abort(h, {});
    REQUIRE(place != nullptr);
    std::copy_n(text.data() + h.offset, h.payload_bytes, place);
    if (const auto why = other.texts.read_abort(h, 4)) read.push_back(*why);
  };
  pair.peer.send_abort(Seq(5), Status(Code::kTimedOut, std::string(600, 'x'), Rank(3)));
  pair.peer.send_abort(Seq(6), Status(Code::kAborted, std::string(5000, 'y'), Rank(9)));
  pair.network.pump();
  REQUIRE(read.size() == 2);  // complete, though they came in pieces
  CHECK(read[0].code() == Code::kTimedOut);
  CHECK(read[0].culprit() == Rank(3));
  CHECK(read[0].message() == std::string(600, 'x'));
  CHECK(read[1].culprit() == kNoRank);
  CHECK(read[1].message() == std::string(1024, 'y'));
}

TEST_CASE("a peer that was never connected returns memory at once") {
  uint32_t epoch = 1;
  uint64_t called = 0;
  const ManualClock clock;
  Peer peer(&clock, &epoch, &called, &called, 1, 1);
  auto owner = std::make_shared<CountingOwner>();
  const auto data = pattern(10);
  CHECK_FALSE(peer.is_connected());
  peer.send(message(1, data, owner));
  CHECK(owner->tokens.size() == 1);
  CHECK(peer.cancel(0) == 0);
  CHECK(peer.is_drained());
  peer.beat();
  peer.drop_incoming(FrameKind::kData, 1);
  peer.finish();
  peer.close();
}

TEST_CASE(
    "a view goes ahead of bulk data and by the control lane, other messages by the "
    "latter only") {
  Pair pair;
  const std::vector<std::byte> sent = pattern(600);  // three frames
  Peer other(&pair.clock, &pair.epoch, &pair.a.num_called, &pair.acked, 0, 0);
  std::vector<std::pair<FrameKind, std::vector<std::byte>>> read;
  pair.b.on_end = [&](const FrameHeader& h) {
    auto place = other.texts.place_view(h);
    REQUIRE(place.is_ok());
    std::copy_n(pair.b.messages[0].data() + h.offset, h.payload_bytes, *place);
    if (const auto bytes = other.texts.read_view(h))
      read.emplace_back(h.kind, std::vector(bytes->begin(), bytes->end()));
    CHECK(h.view == 0);
  };
  pair.peer.send_view(membership::ViewStep::kState, sent);
  pair.network.pump();
  REQUIRE(read.size() == 1);
  CHECK(read[0] == std::pair(FrameKind::kView, sent));
  CHECK(pair.b.last.shard == static_cast<uint16_t>(membership::ViewStep::kState));
  read.clear();
  pair.peer.send_view(membership::ViewStep::kView, sent);
  pair.network.pump();
  REQUIRE(read.size() == 2);
  CHECK(read[0].second == sent);
  CHECK(read[1].second == sent);
  CHECK(read[0].first != read[1].first);
}

TEST_CASE("the number up to which a peer has acknowledged only grows") {
  uint32_t epoch = 1;
  uint64_t called = 0;
  const ManualClock clock;
  Peer peer(&clock, &epoch, &called, &called, 1, 1);
  CHECK(peer.acked() == 0);
  CHECK(peer.note_acked(3));
  CHECK_FALSE(peer.note_acked(3));
  CHECK_FALSE(peer.note_acked(2));
  CHECK(peer.acked() == 3);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loopback_link.h"

#include "harness/catch.h"
#include "harness/manual_clock.h"
#include "harness/recording_handler.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;
using std::chrono::milliseconds;

namespace {

struct Two {
  ManualClock clock;
  LoopbackNetwork network{&clock, 1000};
  RecordingHandler a, b;
  std::unique_ptr<Link> to_b, to_a;

  Two() { std::tie(to_b, to_a) = network.connect(Rank(0), &a, Rank(1), &b); }
  void run_for(Duration d) {
    const TimePoint until = clock.now() + d;
    for (network.pump(); const auto next = network.next_event(); network.pump()) {
      if (*next > until) break;
      clock.advance(*next - clock.now());
    }
    clock.advance(until - clock.now());
    network.pump();
  }
};

}  // namespace

TEST_CASE("messages arrive complete, with extension and call number") {
  Two two;
  const auto data = pattern(2500), empty = pattern(0);
  two.a.num_called = 9;
  auto owner = std::make_shared<CountingOwner>();
  auto m = message(1, data, owner);
  m.extension[0] = std::byte{5};
  m.extension_bytes = 1;
  two.to_b->send(std::move(m));
  two.to_b->send(message(2, empty, owner));
  CHECK(two.b.order.empty());  // send() calls nothing
  CHECK_FALSE(two.to_b->is_drained());
  two.network.pump();
  CHECK(two.b.messages[1] == data);
  CHECK(two.b.order == std::vector<uint64_t>{1, 1, 1, 2});
  CHECK(two.b.extensions[1] == std::vector<std::byte>{std::byte{5}});
  CHECK(two.b.last.called == 9);
  CHECK(owner->tokens == std::vector<uint32_t>{1, 2});
  CHECK(two.to_b->is_drained());
  CHECK_FALSE(two.network.next_event().has_value());
}

TEST_CASE("delay and rate decide when a frame begins and ends") {
  Two two;
  two.network.set_delay(Rank(0), Rank(1), milliseconds(10));
  two.network.set_rate(Rank(0), Rank(1), 10'000);
  const auto data = pattern(936);  // 1000 with its header: 100 ms
  auto owner = std::make_shared<CountingOwner>();
  two.to_b->send(message(1, data, owner));
  two.run_for(milliseconds(9));
  CHECK(two.b.order.empty());
  two.run_for(milliseconds(2));
  REQUIRE(two.to_a->incoming() != nullptr);
  CHECK(two.to_a->incoming()->seq == 1);
  two.run_for(milliseconds(88));
  CHECK(owner->tokens.empty());
  two.run_for(milliseconds(2));
  CHECK(owner->tokens.size() == 1);
  CHECK(two.b.received.empty());
  CHECK_FALSE(two.to_b->is_drained());
  two.run_for(milliseconds(10));
  CHECK(two.b.messages[1] == data);
  CHECK(two.to_a->incoming() == nullptr);
}

TEST_CASE("a stalled direction holds frames back, and the other direction does not") {
  Two two;
  const auto data = pattern(10);
  two.network.stall(Rank(0), Rank(1), two.clock.now() + milliseconds(50));
  two.to_b->send(message(1, data));
  two.to_a->send(message(2, data));
  two.run_for(milliseconds(49));
  CHECK(two.b.order.empty());
  CHECK(two.a.order.size() == 1);
  two.run_for(milliseconds(1));
  CHECK(two.b.order.size() == 1);
}

TEST_CASE("an urgent message overtakes between chunks, and a cancelled message stops") {
  Two two;
  two.network.set_rate(Rank(0), Rank(1), 1'064'000);  // a chunk per millisecond
  const auto large = pattern(10'000), small = pattern(10);
  auto owner = std::make_shared<CountingOwner>();
  const MessageId first = two.to_b->send(message(1, large, owner));
  two.run_for(std::chrono::microseconds(1500));
  two.to_b->send(message(2, small, owner, 5));
  two.run_for(std::chrono::microseconds(1500));
  CHECK(two.b.order == std::vector<uint64_t>{1, 1, 2, 1});
  CHECK(two.to_b->cancel(first) == 7000);
  CHECK(owner->tokens == std::vector<uint32_t>{2});  // its third chunk is being sent
  CHECK(two.to_b->cancel(first) == 0);
  two.run_for(milliseconds(20));
  CHECK(owner->tokens == std::vector<uint32_t>{2, 1});
  CHECK(two.b.received[1] == 3000);
  CHECK(two.to_b->is_drained());
}

TEST_CASE(
    "in memory, too, a message that was to leave last goes in its turn after a hurry") {
  Two two;
  two.network.set_rate(Rank(0), Rank(1), 1'064'000);  // a chunk per millisecond
  const auto data = pattern(3'000);
  const auto send = [&](uint64_t number, bool leaves_last) {
    auto m = message(number, data, {}, 5);
    m.leaves_last = leaves_last;
    return two.to_b->send(std::move(m));
  };
  send(1, true);
  send(2, true);
  send(3, false);
  two.run_for(std::chrono::microseconds(1500));
  two.to_b->hurry();
  send(4, false);
  two.run_for(milliseconds(30));
  // Behind the chunk that was being sent.
  CHECK(two.b.order == std::vector<uint64_t>{3, 3, 1, 1, 1, 2, 2, 2, 3, 4, 4, 4});
}

TEST_CASE("a payload that is dropped on its way does not touch its place again") {
  Two two;
  two.network.set_rate(Rank(0), Rank(1), 100'000);
  const auto data = pattern(1000, 1);
  two.to_b->send(message(1, data));
  two.run_for(milliseconds(1));
  REQUIRE(two.to_a->incoming() != nullptr);
  two.to_a->drop_incoming();
  std::fill(two.b.messages[1].begin(), two.b.messages[1].end(), std::byte{0});
  two.run_for(milliseconds(20));
  CHECK(two.b.messages[1] == std::vector<std::byte>(1000));
  CHECK(two.b.received[1] == 1000);  // on_frame is called all the same
}

TEST_CASE("finish says goodbye behind the queued messages, and the peer sees the end") {
  Two two;
  const auto data = pattern(3000);
  auto owner = std::make_shared<CountingOwner>();
  two.to_b->send(message(1, data, owner));
  two.to_b->finish();
  two.network.pump();
  CHECK(two.b.messages[1] == data);
  CHECK(two.b.kinds.back() == FrameKind::kGoodbye);
  CHECK(two.b.times_lost == 1);
  CHECK(two.b.loss.message() == "rank 0 closed the connection");
  CHECK(two.a.times_lost == 1);
  two.to_b->send(message(2, data, owner));  // delivered at once
  two.network.pump();
  CHECK(owner->tokens == std::vector<uint32_t>{1, 2});
}

TEST_CASE("a cut is a loss on both sides, and frames in flight are lost") {
  Two two;
  two.network.set_delay(Rank(0), Rank(1), milliseconds(10));
  const auto data = pattern(100);
  auto owner = std::make_shared<CountingOwner>();
  two.to_b->send(message(1, data, owner));
  two.run_for(milliseconds(5));
  two.network.cut(Rank(1), Rank(0));
  CHECK(two.a.times_lost == 0);
  two.run_for(milliseconds(20));
  CHECK(two.a.times_lost == 1);
  CHECK(two.b.times_lost == 1);
  CHECK(two.a.loss.code() == Code::kPeerLost);
  CHECK(two.a.loss.culprit() == Rank(1));
  CHECK(two.b.order.empty());
}

TEST_CASE("one end may learn of a cut later, and the two ends can connect again") {
  Two two;
  const auto data = pattern(100);
  const TimePoint begin = two.clock.now();
  two.network.cut(Rank(0), Rank(1), begin + milliseconds(20));
  two.run_for(milliseconds(5));
  CHECK(two.a.times_lost == 1);
  CHECK(two.b.times_lost == 0);
  two.to_a->send(message(1, data));  // delivered nowhere
  two.run_for(milliseconds(14));
  CHECK(two.b.times_lost == 0);
  CHECK(two.a.order.empty());
  two.run_for(milliseconds(1));
  CHECK(two.b.times_lost == 1);

  RecordingHandler c, d;
  auto [there, back] = two.network.connect(Rank(0), &c, Rank(1), &d);
  two.to_b.reset();
  two.to_a.reset();
  there->send(message(2, data));
  two.network.pump();
  CHECK(d.messages[2] == data);
}

TEST_CASE("a stopped member neither sends nor receives") {
  Two two;
  const auto data = pattern(100);
  two.network.stop(Rank(1), two.clock.now() + milliseconds(30));
  two.to_b->send(message(1, data));
  two.to_a->send(message(2, data));
  const uint64_t steps = two.network.num_steps(Rank(1));
  two.run_for(milliseconds(29));
  CHECK(two.a.order.empty());
  CHECK(two.b.order.empty());
  CHECK(two.network.num_steps(Rank(1)) == steps);
  two.run_for(milliseconds(1));
  CHECK(two.a.messages[2] == data);
  CHECK(two.b.messages[1] == data);
  CHECK(two.network.num_steps(Rank(1)) > steps);
}

TEST_CASE("a tap sees frames and holds them back, and no frame overtakes on its lane") {
  Two two;
  const auto data = pattern(100);
  std::vector<uint64_t> seen;
  const TimePoint until = two.clock.now() + milliseconds(10);
  two.network.set_tap(
      [&](Rank from, Rank to, const FrameHeader& header, TimePoint arrives) {
        CHECK(from == Rank(0));
        CHECK(to == Rank(1));
        seen.push_back(header.seq);
        return header.seq == 2 ? until : header.seq == 4 ? Wakeups::kNever : arrives;
      });
  for (uint64_t seq = 1; seq <= 3; ++seq) two.to_b->send(message(seq, data));
  two.run_for(milliseconds(9));
  CHECK(seen == std::vector<uint64_t>{1, 2, 3});
  CHECK(two.b.order == std::vector<uint64_t>{1});
  two.run_for(milliseconds(1));
  CHECK(two.b.order == std::vector<uint64_t>{1, 2, 3});
  two.to_b->send(message(4, data));
  two.to_b->send(message(5, data));
  two.network.pump();
  CHECK_FALSE(two.network.next_event().has_value());
  CHECK(two.b.order.size() == 3);
}

TEST_CASE("a close tells only the other side, and nonsense loses the link") {
  Two two;
  auto owner = std::make_shared<CountingOwner>();
  const auto data = pattern(10);
  two.to_b->send(message(1, data, owner));
  two.to_b->close();
  two.network.pump();
  CHECK(two.a.times_lost == 0);
  CHECK(two.b.times_lost == 1);
  CHECK(owner->tokens.empty());
  Two other;
  other.b.refuse = "not like this";
  other.to_b->send(message(1, data));
  other.network.pump();
  CHECK(other.b.loss.code() == Code::kProtocol);
  CHECK(other.b.loss.message() == "rank 0: not like this");
  CHECK(other.a.times_lost == 1);
}

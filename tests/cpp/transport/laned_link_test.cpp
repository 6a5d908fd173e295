// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/laned_link.h"

#include <sys/socket.h>

#include "harness/catch.h"
#include "harness/manual_clock.h"
#include "harness/recording_handler.h"
#include "transport/loopback_link.h"
#include "transport/socket_stream.h"
#include "transport/stream_link.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;
using std::chrono::milliseconds;

namespace {

constexpr std::array<Lane, kNumLanes> kLanes = {Lane::kBulk, Lane::kControl};

OutMessage control(FrameKind kind, uint64_t seq,
                   std::shared_ptr<SendOwner> owner = nullptr) {
  OutMessage m;
  m.header.kind = kind;
  m.header.seq = seq;
  m.owner = std::move(owner);
  m.token = static_cast<uint32_t>(seq);
  m.priority = kControlPriority;
  return m;
}

// A laned link of rank 0. The far ends are raw sockets, by lane.
struct Near {
  EventLoop loop;
  Uplink uplink{&loop, 0};
  RecordingHandler a;
  std::unique_ptr<LanedLink> link;
  std::array<int, kNumLanes> raw{-1, -1};

  Near() : link(std::make_unique<LanedLink>(Rank(1), &a)) {
    for (const Lane lane : kLanes) {
      int fds[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
      auto stream = std::make_unique<SocketStream>(&loop, Fd(fds[0]), lane);
      link->set(lane,
                std::make_unique<StreamLink>(&loop, &uplink, std::move(stream), lane,
                                             Rank(1), 1000, link->handler(lane)));
      far(lane) = fds[1];
    }
  }
  ~Near() {
    for (const Lane lane : kLanes) cut(lane);
  }
  int& far(Lane lane) { return raw[static_cast<size_t>(lane)]; }
  void cut(Lane lane) {
    if (far(lane) >= 0) ::close(std::exchange(far(lane), -1));
  }
  // Writes a frame at the far end.
  void say(Lane lane, FrameKind kind, uint64_t seq, size_t payload = 0) {
    FrameHeader h;
    h.kind = kind;
    h.seq = seq;
    h.payload_bytes = static_cast<uint32_t>(payload);
    h.total_bytes = payload;
    std::vector<std::byte> bytes(kHeaderBytes + payload);
    encode(h, std::span<std::byte, kHeaderBytes>(bytes.data(), kHeaderBytes));
    REQUIRE(::send(far(lane), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
  }
  // Headers of the frames that have arrived at the far end.
  std::vector<FrameKind> heard(Lane lane) {
    std::vector<std::byte> in(1 << 20);
    const ssize_t n = ::recv(far(lane), in.data(), in.size(), 0);
    in.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    std::vector<FrameKind> kinds;
    for (size_t at = 0; at + kHeaderBytes <= in.size();) {
      auto h = decode(
          std::span<const std::byte, kHeaderBytes>(in.data() + at, kHeaderBytes));
      REQUIRE(h.is_ok());
      kinds.push_back(h->kind);
      at += kHeaderBytes + h->payload_bytes;
    }
    return kinds;
  }
  void run_until(const std::function<bool()>& is_done) {
    int turns = 0;
    std::function<void()> look = [&] {
      if (is_done() || ++turns > 10'000) return loop.stop();
      loop.post(look);
    };
    loop.post(look);
    loop.run();
    REQUIRE(is_done());
  }
  void run_turns(int count) {
    run_until([&] { return --count < 0; });
  }
};

}  // namespace

TEST_CASE("a control frame does not wait behind a peer that takes no data", "[tcp]") {
  Near near;
  const auto data = pattern(50'000'000);
  near.link->send(message(1, data));
  near.run_turns(3);  // the kernel buffers are full
  CHECK_FALSE(near.link->is_drained());
  for (const auto kind : {FrameKind::kAbort, FrameKind::kCalled, FrameKind::kReady,
                          FrameKind::kP2pReady, FrameKind::kP2pAnnounce}) {
    near.link->send(control(kind, 2));
    near.run_turns(2);
    CHECK(near.heard(Lane::kControl) == std::vector<FrameKind>{kind});
  }
}

TEST_CASE("kReady and kCalled go over a bulk lane that is shared memory", "[tcp]") {
  const auto kind = GENERATE(FrameKind::kReady, FrameKind::kCalled);
  Near near;
  near.link->set_shared();
  near.link->send(control(kind, 2));
  near.link->send(control(FrameKind::kP2pReady, 3));
  near.run_turns(2);
  CHECK(near.heard(Lane::kBulk) == std::vector<FrameKind>{kind});
  CHECK(near.heard(Lane::kControl) == std::vector<FrameKind>{FrameKind::kP2pReady});
  near.say(Lane::kBulk, kind, 4);
  near.run_until([&] { return near.a.last.seq == 4; });
  near.say(Lane::kControl, kind, 5);
  near.run_until([&] { return near.a.times_lost == 1; });
  CHECK(near.a.loss.code() == Code::kProtocol);
}

TEST_CASE("data and the goodbye go over the bulk lane, in this order", "[tcp]") {
  Near near;
  const auto data = pattern(10);
  auto owner = std::make_shared<CountingOwner>();
  near.link->send(message(1, data, owner));
  near.link->finish();
  near.run_turns(3);
  CHECK(near.heard(Lane::kBulk) ==
        std::vector<FrameKind>{FrameKind::kData, FrameKind::kGoodbye});
  CHECK(near.heard(Lane::kBulk).empty());
  char byte = 0;
  CHECK(::recv(near.far(Lane::kBulk), &byte, 1, 0) == 0);
  // The control lane stays open: its end must not arrive before the end of the data.
  CHECK(::recv(near.far(Lane::kControl), &byte, 1, 0) < 0);
  CHECK(near.link->is_drained());
}

TEST_CASE("a lane that breaks ends the link once, after all data that had arrived",
          "[tcp]") {
  for (const Lane broken : kLanes) {
    Near near;
    const Lane other = broken == Lane::kBulk ? Lane::kControl : Lane::kBulk;
    const auto data = pattern(5'000'000);
    auto owner = std::make_shared<CountingOwner>();
    near.link->send(message(99, data, owner));
    near.run_turns(2);
    const auto fitting = [](Lane lane) {
      return lane == Lane::kBulk ? FrameKind::kData : FrameKind::kAbort;
    };
    near.say(broken, fitting(broken), 1);
    near.cut(broken);
    for (uint64_t seq = 2; seq < 7; ++seq) near.say(other, fitting(other), seq, 5000);
    near.run_until([&] { return near.a.times_lost > 0; });
    near.run_turns(3);
    CHECK(near.a.times_lost == 1);
    CHECK(near.a.loss.code() == Code::kPeerLost);
    CHECK(near.a.lost_rank == Rank(1));
    auto order = near.a.order;
    std::sort(order.begin(), order.end());
    CHECK(order == std::vector<uint64_t>{1, 2, 3, 4, 5, 6});
    CHECK(owner->tokens.size() == 1);  // the memory is returned
    CHECK(near.link->is_drained());
    // The peer sees the end of both lanes.
    while (near.heard(other).size() > 0) {
    }
    char byte = 0;
    CHECK(::recv(near.far(other), &byte, 1, 0) == 0);
  }
}

TEST_CASE("invalid bytes on a lane are the reason of the loss", "[tcp]") {
  for (const Lane lane : kLanes) {
    Near near;
    const std::string garbage(200, 'x');
    REQUIRE(::send(near.far(lane), garbage.data(), garbage.size(), 0) == 200);
    near.run_until([&] { return near.a.times_lost == 1; });
    CHECK(near.a.loss.code() == Code::kProtocol);
  }
}

TEST_CASE("a message is cancelled on its lane", "[tcp]") {
  Near near;
  const auto data = pattern(100);
  auto owner = std::make_shared<CountingOwner>();
  const MessageId bulk = near.link->send(message(1, data, owner));
  auto abort = control(FrameKind::kAbort, 2, owner);
  abort.data = data.data();
  abort.bytes = abort.header.total_bytes = 50;
  const MessageId urgent = near.link->send(std::move(abort));
  CHECK(bulk != urgent);
  CHECK(near.link->cancel(urgent) == 50);
  CHECK(near.link->cancel(urgent) == 0);
  CHECK(near.link->cancel(bulk) == 100);
  near.run_turns(2);
  CHECK(owner->tokens.size() == 2);
  CHECK(near.heard(Lane::kBulk).empty());
  CHECK(near.heard(Lane::kControl).empty());
}

TEST_CASE("a laned link is drained when both lanes are drained", "[tcp]") {
  Near near;
  const auto data = pattern(50'000'000);
  CHECK(near.link->is_drained());
  near.link->send(control(FrameKind::kCalled, 1));
  CHECK_FALSE(near.link->is_drained());
  near.run_turns(2);
  near.heard(Lane::kControl);
  CHECK(near.link->is_drained());
  near.link->send(message(1, data));
  near.run_turns(2);
  CHECK_FALSE(near.link->is_drained());
  near.link->close();
  CHECK(near.link->is_drained());
  near.run_turns(2);
  CHECK(near.a.times_lost == 0);
  char byte = 0;
  for (const Lane lane : kLanes) {
    while (near.heard(lane).size() > 0) {
    }
    CHECK(::recv(near.far(lane), &byte, 1, 0) <= 0);
  }
}

TEST_CASE("in memory, too, control frames overtake and the end is reported once") {
  ManualClock clock;
  LoopbackNetwork network{&clock, 1000};
  RecordingHandler a, b;
  auto [to_b, to_a] = network.connect(Rank(0), &a, Rank(1), &b);
  network.set_rate(Rank(0), Rank(1), 1'064'000);  // a chunk per millisecond
  const auto data = pattern(10'000);
  to_b->send(message(1, data));
  network.pump();
  to_b->send(control(FrameKind::kReady, 2));
  network.pump();
  clock.advance(std::chrono::microseconds(100));
  network.pump();
  REQUIRE(b.kinds == std::vector<FrameKind>{FrameKind::kReady});
  clock.advance(milliseconds(2));
  network.pump();
  to_a->hang_up();
  clock.advance(milliseconds(50));
  network.pump();
  CHECK(b.times_lost == 1);
  CHECK(a.times_lost == 1);
  CHECK(b.received[1] < data.size());
}

TEST_CASE("a frame on the wrong lane ends the link", "[tcp]") {
  for (const Lane lane : kLanes) {
    Near near;
    const auto astray = lane == Lane::kBulk ? FrameKind::kAbort : FrameKind::kContrib;
    near.say(lane, astray, 1, 10);
    near.run_until([&] { return near.a.times_lost == 1; });
    CHECK(near.a.order.empty());
    CHECK(near.a.loss.code() == Code::kProtocol);
    CHECK(near.a.loss.message() == concat("rank 1: a frame of kind ", int(astray),
                                          " on a lane that it does not belong to"));
  }
}

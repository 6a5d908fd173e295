// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/stream_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "harness/catch.h"
#include "harness/recording_handler.h"
#include "harness/shared_pair.h"
#include "transport/connector.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;

namespace {

// Two links on one loop, over a socket pair with small buffers or over shared memory.
struct Two {
  EventLoop loop;
  Uplink uplink{&loop, 0};
  RecordingHandler a, b;
  std::unique_ptr<StreamLink> to_b, to_a;
  int raw = -1;  // the far end if there is no second link

  explicit Two(bool is_raw = false) {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    if (is_raw) {
      to_b = link_over(fds[0], Rank(1), &a);
      raw = fds[1];
    } else if (GENERATE(false, true)) {
      auto [made, opened] = make_shared_pair(16 << 10);
      to_b = link_over(fds[0], Rank(1), &a, std::move(made));
      to_a = link_over(fds[1], Rank(0), &b, std::move(opened));
    } else {
      to_b = link_over(fds[0], Rank(1), &a);
      to_a = link_over(fds[1], Rank(0), &b);
    }
  }
  ~Two() {
    if (raw >= 0) ::close(raw);
  }
  std::unique_ptr<StreamLink> link_over(int fd, Rank peer, LinkHandler* handler,
                                        std::optional<SharedMemory> memory = {}) {
    auto stream =
        make_stream(&loop, Connection{Fd(fd), std::move(memory)}, Lane::kBulk);
    return std::make_unique<StreamLink>(&loop, &uplink, std::move(stream), Lane::kBulk,
                                        peer, 1000, handler);
  }
  // Runs turns until `is_done`.
  void run_until(const std::function<bool()>& is_done) {
    int turns = 0;
    std::function<void()> look = [&] {
      if (is_done() || ++turns > 200'000) return loop.stop();
      loop.post(look);
    };
    loop.post(look);
    loop.run();
    REQUIRE(is_done());
  }
};

// A full stream to another host: it accepts nothing until the test allows it.
struct FullStream final : ByteStream {
  void start(StreamHandler* h) override { handler = h; }
  Result<size_t> write(std::span<const iovec> parts) override {
    if (is_full) return size_t{0};
    size_t all = 0;
    for (const iovec& part : parts) all += part.iov_len;
    all = std::min(all, most);
    written += all;
    for (const iovec& part : parts) {
      const auto* data = static_cast<const std::byte*>(part.iov_base);
      const size_t n = std::min(part.iov_len, written - taken.size());
      taken.insert(taken.end(), data, data + n);
    }
    return all;
  }
  void push(Urgency urgency) override { pushes.push_back(urgency); }
  void wait_for_room(bool waits) override { waits_for_room = waits; }
  bool is_drained() const override { return true; }
  size_t room() const override { return room_for_sure; }
  std::optional<size_t> unacknowledged() const override { return 0; }
  size_t segment_bytes() const override { return 1448; }
  Result<size_t> read(std::span<const iovec> parts, Caching caching) override {
    readings.push_back(caching);
    size_t all = 0;
    for (const iovec& part : parts) {
      const size_t n = std::min(part.iov_len, incoming.size());
      std::copy_n(incoming.begin(), n, static_cast<std::byte*>(part.iov_base));
      incoming.erase(incoming.begin(), incoming.begin() + static_cast<ptrdiff_t>(n));
      all += n;
    }
    return all;
  }
  void end_sending() override {}
  void hang_up() override { is_hung_up = true; }
  void end() override {}

  StreamHandler* handler = nullptr;
  bool is_hung_up = false;
  size_t most = std::numeric_limits<size_t>::max();  // of a write
  bool is_full = true;
  bool waits_for_room = false;
  size_t written = 0;
  std::vector<std::byte> taken;
  size_t room_for_sure = 0;
  std::vector<Urgency> pushes;  // urgency of each push of written bytes
  std::vector<std::byte> incoming;
  std::vector<Caching> readings;
};

struct OverFullStream {
  EventLoop loop;
  Uplink uplink{&loop, 0};
  RecordingHandler handler;
  std::unique_ptr<FullStream> owned = std::make_unique<FullStream>();
  FullStream& stream = *owned;
  StreamLink link{&loop,   &uplink, std::move(owned), Lane::kBulk,
                  Rank(1), 1000,    &handler};

  void run_a_turn() {
    loop.post([this] { loop.stop(); });
    loop.run();
  }
};

// Numbers of the collectives of consecutive frames that all have the same payload size.
std::vector<uint64_t> seqs_of(std::span<const std::byte> taken, size_t payload_bytes) {
  std::vector<uint64_t> seqs;
  for (size_t at = 0; at < taken.size(); at += kHeaderBytes + payload_bytes) {
    auto header =
        decode(std::span<const std::byte, kHeaderBytes>(&taken[at], kHeaderBytes));
    REQUIRE(header.is_ok());
    seqs.push_back(header->seq);
  }
  return seqs;
}

}  // namespace

TEST_CASE("a push follows the written bytes and has their urgency") {
  OverFullStream over;
  auto& [loop, uplink, handler, owned, stream, link] = over;
  stream.is_full = false;
  const auto data = pattern(100);
  const auto owner = std::make_shared<CountingOwner>();
  // The end of a message is reported in another flush, which has nothing to write.
  const auto send_in_a_turn = [&](std::vector<Urgency> of_messages) {
    for (const Urgency urgency : of_messages) {
      OutMessage m = message(1, data, owner);
      m.urgency = urgency;
      link.send(std::move(m));
    }
    over.run_a_turn();
    return std::exchange(stream.pushes, {});
  };
  using enum Urgency;
  CHECK(send_in_a_turn({kNone}) == std::vector{kNone});
  CHECK(send_in_a_turn({kServed}) == std::vector{kServed});
  CHECK(send_in_a_turn({kNone, kNone}) == std::vector{kNone});
  CHECK(send_in_a_turn({kNone, kAwaited, kNone}) == std::vector{kAwaited});
  CHECK(send_in_a_turn({}).empty());
}

TEST_CASE("a message that surely fits is written at once if nothing is ahead of it") {
  OverFullStream over;
  auto& [loop, uplink, handler, owned, stream, link] = over;
  stream.is_full = false;
  const auto data = pattern(2000);
  const auto owner = std::make_shared<CountingOwner>();
  const auto of = [&](size_t bytes) {
    OutMessage m = message(1, data, owner);
    m.bytes = bytes;
    m.urgency = Urgency::kAwaited;
    return m;
  };
  const size_t frame = kHeaderBytes + 100;
  const auto chunks = [&] { return uplink.counters().chunks.load(); };

  SECTION("the owner of the message is not called") {
    stream.room_for_sure = frame;
    CHECK(link.send_at_once(of(100)));
    CHECK(stream.written == frame);
    CHECK(stream.pushes == std::vector{Urgency::kAwaited});
    CHECK(chunks() == 1);
    over.run_a_turn();
    CHECK(stream.written == frame);
    CHECK(owner->tokens.empty());
    // A message that may still be recalled waits for the end of the turn.
    const MessageId id = link.send(of(100));
    CHECK(stream.written == frame);
    CHECK(link.cancel(id) == 100);
  }
  SECTION(
      "a message without room, with several chunks, or held, is not written at once") {
    stream.room_for_sure = frame - 1;
    CHECK_FALSE(link.send_at_once(of(100)));
    stream.room_for_sure = 10'000;
    CHECK_FALSE(link.send_at_once(of(1001)));
    OutMessage held = of(100);
    held.is_held = true;
    CHECK_FALSE(link.send_at_once(held));
    OutMessage small_chunks = of(100);
    small_chunks.chunk_bytes = 64;
    CHECK_FALSE(link.send_at_once(small_chunks));
    over.run_a_turn();
    CHECK(stream.written == 0);
    CHECK(chunks() == 0);
    CHECK(link.send_at_once(of(1000)));
  }
  SECTION(
      "a message behind other messages, queued or half written, is not written at "
      "once") {
    stream.room_for_sure = 0;
    link.send(of(100));
    stream.room_for_sure = 10'000;
    CHECK_FALSE(link.send_at_once(of(100)));
    stream.is_full = true;
    over.run_a_turn();  // picked, but not accepted
    CHECK_FALSE(link.send_at_once(of(100)));
    CHECK(stream.written == 0);
    stream.is_full = false;
    stream.handler->on_writable();
    CHECK(stream.written == frame);
    CHECK(link.send_at_once(of(100)));
  }
  SECTION("a stream that takes less than it promised is hung up") {
    stream.room_for_sure = frame;
    stream.most = frame - 1;
    CHECK_FALSE(link.send_at_once(of(100)));
    CHECK(stream.is_hung_up);
  }
  SECTION("nothing is written on a link that has ended") {
    stream.room_for_sure = 10'000;
    link.hang_up();
    CHECK_FALSE(link.send_at_once(of(100)));
    CHECK(stream.written == 0);
  }
}

TEST_CASE("a message that was to leave last goes in its turn after a hurry") {
  const bool hurries = GENERATE(false, true);
  OverFullStream over;
  auto& [loop, uplink, handler, owned, stream, link] = over;
  stream.is_full = false;
  const auto data = pattern(100);
  const auto send = [&](uint64_t number, bool leaves_last) {
    OutMessage message;
    message.header.kind = FrameKind::kResult;
    message.header.seq = number;
    message.header.total_bytes = data.size();
    message.priority = 3;
    message.leaves_last = leaves_last;
    message.data = data.data();
    message.bytes = data.size();
    return link.send(std::move(message));
  };
  send(1, false);
  send(2, true);
  const auto cancelled = send(3, true);
  send(4, false);
  if (hurries) link.hurry();
  send(5, false);
  CHECK(link.cancel(cancelled) == 100);
  over.run_a_turn();
  over.run_a_turn();
  const auto order =
      hurries ? std::vector<uint64_t>{1, 2, 4, 5} : std::vector<uint64_t>{1, 4, 5, 2};
  CHECK(seqs_of(stream.taken, data.size()) == order);
}

TEST_CASE("an earlier turn goes first, and messages without a turn keep their order") {
  OverFullStream over;
  auto& [loop, uplink, handler, owned, stream, link] = over;
  stream.is_full = false;
  const auto data = pattern(100);
  MessageId last = 0;
  const auto send = [&](uint64_t number, uint64_t turn, size_t bytes) {
    OutMessage message;
    message.header.kind = FrameKind::kContrib;
    message.header.seq = number;
    message.header.total_bytes = bytes;
    message.turn = turn;
    message.data = data.data();
    message.bytes = bytes;
    last = link.send(std::move(message));
  };
  send(1, 6, 100);
  send(2, 0, 100);
  send(3, 7, 100);
  send(4, 5, 90);
  CHECK(link.cancel(last) == 90);
  send(5, 6, 100);
  send(6, 5, 100);
  over.run_a_turn();
  over.run_a_turn();
  CHECK(seqs_of(stream.taken, 100) == std::vector<uint64_t>{6, 1, 2, 5, 3});
}

TEST_CASE("chunks picked for a full stream leave when calls differ in priority") {
  OverFullStream over;
  auto& [loop, uplink, handler, owned, stream, link] = over;
  const auto differ = [&] {
    uplink.note(0);
    uplink.note(1);
  };
  const bool is_ordered_before = GENERATE(false, true);
  if (is_ordered_before) differ();
  const auto data = pattern(900);
  OutMessage message;
  message.data = data.data();
  message.bytes = data.size();
  link.send(std::move(message));
  over.run_a_turn();
  over.run_a_turn();
  REQUIRE(stream.waits_for_room);
  if (!is_ordered_before) differ();
  REQUIRE(uplink.is_ordered());
  stream.is_full = false;
  stream.handler->on_writable();
  over.run_a_turn();
  over.run_a_turn();
  CHECK(stream.written == kHeaderBytes + data.size());
  CHECK_FALSE(stream.waits_for_room);
}

TEST_CASE("large and small messages arrive complete in both directions", "[tcp]") {
  Two two;
  const std::vector<std::vector<std::byte>> data = {
      pattern(5'000'000), pattern(0),    pattern(1),
      pattern(999),       pattern(1001), pattern(70'000)};
  auto owner = std::make_shared<CountingOwner>();
  for (uint64_t i = 0; i < data.size(); ++i) {
    two.to_b->send(message(i, data[i], owner));
    two.to_a->send(message(i, data[i], owner));
  }
  CHECK(owner->tokens.empty());
  const auto all = [&](RecordingHandler& h) {
    for (uint64_t i = 0; i < data.size(); ++i)
      if (!h.received.contains(i) || h.received[i] < data[i].size()) return false;
    return true;
  };
  two.run_until([&] { return all(two.a) && all(two.b) && owner->tokens.size() == 12; });
  for (uint64_t i = 0; i < data.size(); ++i) {
    CHECK((two.a.messages[i] == data[i] && two.b.messages[i] == data[i]));
  }
  CHECK(two.to_b->is_drained());
}

TEST_CASE("the first chunk has the extension, and all chunks have the call number",
          "[tcp]") {
  Two two;
  const auto data = pattern(2500);
  two.a.num_called = 42;
  auto m = message(1, data);
  m.extension_bytes = kMaxExtensionBytes;
  m.extension.fill(std::byte{3});
  two.to_b->send(std::move(m));
  two.run_until([&] { return two.b.received[1] == 2500; });
  CHECK(two.b.messages[1] == data);
  CHECK(two.b.extensions[1] == std::vector<std::byte>(255, std::byte{3}));
  CHECK(two.b.order.size() == 3);
  CHECK(two.b.last.called == 42);
}

TEST_CASE("an urgent message overtakes a large one", "[tcp]") {
  Two two;
  const auto large = pattern(20'000'000), small = pattern(10);
  two.to_b->send(message(1, large));
  bool is_sent = false;
  two.b.on_begin = [&](const FrameHeader&) {
    if (!std::exchange(is_sent, true)) two.to_b->send(message(2, small, {}, 9));
  };
  size_t before = 0;
  two.b.on_end = [&](const FrameHeader& h) {
    if (h.seq == 2) before = two.b.received[1];
  };
  two.run_until([&] { return two.b.received[1] == large.size(); });
  CHECK(two.b.received[2] == 10);
  CHECK(before < large.size() / 2);
  CHECK(two.b.messages[1] == large);
}

TEST_CASE("a cancelled message ends between chunks and gives its memory back",
          "[tcp]") {
  Two two;
  auto large = std::make_unique<std::vector<std::byte>>(pattern(20'000'000));
  const auto small = pattern(10);
  auto owner = std::make_shared<CountingOwner>();
  size_t dropped = 0;
  const MessageId id = two.to_b->send(message(1, *large, owner));
  owner->then = [&](uint32_t token) {
    if (token == 1) large.reset();  // the sanitizer detects a later read
  };
  two.b.on_begin = [&](const FrameHeader&) {
    if (dropped != 0) return;
    dropped = two.to_b->cancel(id);
    two.to_b->send(message(2, small, owner));
  };
  two.run_until([&] { return two.b.received[2] == 10; });
  CHECK(dropped > 10'000'000);
  CHECK(two.b.received[1] + dropped == 20'000'000);
  CHECK(owner->tokens == std::vector<uint32_t>{1, 2});
}

TEST_CASE(
    "memory of a cancelled message is not read again, even if half a chunk is written",
    "[tcp]") {
  for (const size_t begun : {100u, 700u, 1500u}) {
    Two two(true);
    const int small = 1;  // the kernel accepts a few kilobytes
    REQUIRE(::setsockopt(two.raw, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    auto data = pattern(5'000'000);
    const auto original = data;
    auto owner = std::make_shared<CountingOwner>();
    const MessageId id = two.to_b->send(message(1, data, owner));
    std::vector<std::byte> got(10'000'000);
    size_t num_got = 0;
    const auto take = [&](size_t most) {
      const ssize_t n = ::recv(two.raw, got.data() + num_got, most, MSG_DONTWAIT);
      num_got += static_cast<size_t>(std::max<ssize_t>(n, 0));
    };
    two.run_until([&] {
      take(begun - std::min(begun, num_got));
      return num_got >= begun;
    });
    CHECK(two.to_b->cancel(id) > 0);
    std::fill(data.begin(), data.end(), std::byte{0xee});
    const std::vector<std::byte> after = pattern(10);
    two.to_b->send(message(2, after, owner));
    two.run_until([&] {
      take(1 << 20);
      return owner->tokens.size() == 2;
    });
    take(1 << 20);
    // The received bytes are whole frames of the original data, then the other message.
    size_t at = 0;
    bool is_other = false;
    while (at < num_got) {
      REQUIRE(num_got - at >= kHeaderBytes);
      auto h = decode(
          std::span<const std::byte, kHeaderBytes>(got.data() + at, kHeaderBytes));
      REQUIRE(h.is_ok());
      at += kHeaderBytes + h->extension_bytes;
      REQUIRE(num_got - at >= h->payload_bytes);
      const auto& source = h->seq == 1 ? original : after;
      CHECK(std::memcmp(got.data() + at, source.data() + h->offset, h->payload_bytes) ==
            0);
      at += h->payload_bytes;
      is_other = h->seq == 2;
    }
    CHECK(is_other);
  }
}

TEST_CASE("a message that has not begun can be cancelled completely", "[tcp]") {
  Two two;
  const auto data = pattern(100), other = pattern(5);
  auto owner = std::make_shared<CountingOwner>();
  const MessageId id = two.to_b->send(message(1, data, owner));
  two.to_b->send(message(2, other, owner));
  CHECK(two.to_b->cancel(id) == 100);
  CHECK(owner->tokens.empty());
  CHECK(two.to_b->cancel(id) == 0);
  CHECK(two.to_b->cancel(12345) == 0);
  two.run_until([&] { return two.b.received[2] == 5; });
  CHECK_FALSE(two.b.received.contains(1));
  CHECK(owner->tokens == std::vector<uint32_t>{1, 2});
}

TEST_CASE("the rest of a payload is thrown away after drop_incoming", "[tcp]") {
  Two two(true);
  FrameHeader h;
  h.kind = FrameKind::kData;
  h.seq = 1;
  h.payload_bytes = 800;
  h.total_bytes = 800;
  std::vector<std::byte> bytes(kHeaderBytes);
  encode(h, std::span<std::byte, kHeaderBytes>(bytes.data(), kHeaderBytes));
  const auto payload = pattern(800, 1);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  REQUIRE(::send(two.raw, bytes.data(), 300, 0) == 300);
  two.run_until([&] { return two.to_b->incoming() != nullptr; });
  CHECK(two.to_b->incoming()->seq == 1);
  CHECK(two.to_b->num_received() == 300 - kHeaderBytes);
  two.to_b->drop_incoming();
  two.a.messages[1].clear();
  two.a.messages[1].shrink_to_fit();
  REQUIRE(::send(two.raw, bytes.data() + 300, 564, 0) == 564);
  two.run_until([&] { return two.a.received[1] == 800; });
  CHECK(two.to_b->incoming() == nullptr);
  CHECK(two.to_b->num_received() == 0);
}

TEST_CASE("parts of a large result bypass the caches, and folded data does not") {
  OverFullStream over;
  auto& [loop, uplink, handler, owned, stream, link] = over;
  uint64_t seq = 0;
  const auto caching_of_payload = [&](FrameKind kind, uint64_t total) {
    FrameHeader h;
    h.kind = kind;
    h.seq = ++seq;
    h.payload_bytes = 100;
    h.total_bytes = total;
    stream.incoming.resize(kHeaderBytes);
    encode(h, std::span<std::byte, kHeaderBytes>(stream.incoming.data(), kHeaderBytes));
    stream.handler->on_readable();
    stream.incoming = pattern(100, static_cast<unsigned>(seq));
    stream.readings.clear();
    stream.handler->on_readable();
    CHECK(handler.received[seq] == 100);
    return stream.readings.at(0);
  };
  CHECK(caching_of_payload(FrameKind::kData, kPassedBytes) == Caching::kPassed);
  CHECK(caching_of_payload(FrameKind::kResult, kPassedBytes) == Caching::kPassed);
  CHECK(caching_of_payload(FrameKind::kP2pData, kPassedBytes) == Caching::kPassed);
  CHECK(caching_of_payload(FrameKind::kData, kPassedBytes - 1) == Caching::kKept);
  CHECK(caching_of_payload(FrameKind::kContrib, kPassedBytes) == Caching::kKept);
}

TEST_CASE("urgent messages overtake picked chunks that have not begun", "[tcp]") {
  Two two(true);
  const auto bulk = pattern(500'000), urgent = pattern(10);
  two.to_b->send(message(1, bulk));
  int turns = 0;
  two.run_until([&] { return ++turns > 10; });  // the socket is full
  std::vector<std::byte> got(1'000'000);
  auto take = [&, num_got = size_t{0}]() mutable {
    const ssize_t n =
        ::recv(two.raw, got.data() + num_got, got.size() - num_got, MSG_DONTWAIT);
    return num_got += static_cast<size_t>(std::max<ssize_t>(n, 0));
  };
  two.to_b->send(message(2, urgent, {}, 9));
  const size_t in_kernel = take();
  two.run_until([&] { return take() == 500 * 1064 + 74; });
  // All bulk frames are whole. The urgent frame is behind the bulk frame that had
  // begun.
  size_t at = 0;
  const auto header_at = [&](size_t place) {
    return *decode(std::span<const std::byte, kHeaderBytes>(&got[place], kHeaderBytes));
  };
  while (header_at(at).seq == 1) at += kHeaderBytes + header_at(at).payload_bytes;
  CHECK(at >= in_kernel);
  CHECK(at < in_kernel + 1064);
}

TEST_CASE("frames cut at any byte are put together", "[tcp]") {
  Two two(true);
  FrameHeader h;
  h.kind = FrameKind::kData;
  h.extension_bytes = 3;
  h.seq = 1;
  h.payload_bytes = 5;
  h.total_bytes = 5;
  std::vector<std::byte> bytes(kHeaderBytes);
  encode(h, std::span<std::byte, kHeaderBytes>(bytes.data(), kHeaderBytes));
  const auto rest = pattern(8, 1);
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    two.a.received.clear();
    REQUIRE(::send(two.raw, bytes.data(), cut, 0) == static_cast<ssize_t>(cut));
    int turns = 0;
    two.run_until([&] { return ++turns > 2; });
    CHECK(two.a.received.empty());
    const size_t left = bytes.size() - cut;
    REQUIRE(::send(two.raw, bytes.data() + cut, left, 0) == static_cast<ssize_t>(left));
    two.run_until([&] { return two.a.received[1] == 5; });
    CHECK(std::equal(rest.begin() + 3, rest.end(), two.a.messages[1].begin()));
  }
}

TEST_CASE("over TCP finish says goodbye behind what is queued", "[tcp]") {
  Two two;
  const auto data = pattern(3'000'000);
  auto owner = std::make_shared<CountingOwner>();
  two.to_b->send(message(1, data, owner));
  two.to_b->finish();
  two.run_until([&] { return two.a.times_lost == 1; });  // the peer closes in turn
  CHECK(two.b.messages[1] == data);
  CHECK(two.b.kinds.back() == FrameKind::kGoodbye);
  CHECK(two.b.loss.message() == "rank 0 closed the connection");
  two.to_b->send(message(2, data, owner));
  two.run_until([&] { return owner->tokens.size() == 2; });
}

TEST_CASE("a peer that goes away is a loss, and owners get their memory back",
          "[tcp]") {
  trace::Recorder recorder(1 << 16);
  Two two;
  const auto data = pattern(30'000'000);
  auto owner = std::make_shared<CountingOwner>();
  recorder.arm();
  two.to_b->trace({&recorder, Rank(1), 0});
  two.to_b->send(message(1, data, owner));
  two.run_until([&] { return two.b.received[1] > 0; });
  two.to_a.reset();
  two.run_until([&] { return two.a.times_lost == 1; });
  CHECK(two.a.loss.code() == Code::kPeerLost);
  CHECK(two.a.loss.culprit() == Rank(1));
  auto spans = recorder.take().spans;
  std::erase_if(spans, [](const auto& s) { return s.kind != trace::SpanKind::kSend; });
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].outcome == trace::SpanOutcome::kFailed);
  two.run_until([&] { return owner->tokens.size() == 1; });
  CHECK(two.b.times_lost == 0);
}

TEST_CASE("data of a peer that has ended is read, though writing to it fails",
          "[tcp]") {
  Two two(true);
  FrameHeader h;
  h.kind = FrameKind::kGoodbye;
  std::vector<std::byte> bytes(kHeaderBytes);
  encode(h, std::span<std::byte, kHeaderBytes>(bytes.data(), kHeaderBytes));
  REQUIRE(::send(two.raw, bytes.data(), bytes.size(), 0) == kHeaderBytes);
  ::close(std::exchange(two.raw, -1));
  const auto data = pattern(10);
  auto owner = std::make_shared<CountingOwner>();
  two.to_b->send(message(1, data, owner));  // EPIPE at the end of the first turn
  two.to_b->send(message(2, data, owner));
  two.run_until([&] { return two.a.times_lost == 1; });
  CHECK(two.a.kinds == std::vector<FrameKind>{FrameKind::kGoodbye});
  CHECK(two.a.loss.code() == Code::kPeerLost);
  two.run_until([&] { return owner->tokens.size() == 2; });
}

TEST_CASE("invalid bytes end the link with the reason, and the peer sees it", "[tcp]") {
  Two two(true);
  const std::string garbage(200, 'x');
  REQUIRE(::send(two.raw, garbage.data(), garbage.size(), 0) == 200);
  two.run_until([&] { return two.a.times_lost == 1; });
  CHECK(two.a.loss.code() == Code::kProtocol);
  CHECK(two.a.loss.message().find("rank 1: this is no aikido frame") == 0);
  CHECK(two.a.lost_rank == Rank(1));
  char byte = 0;
  CHECK(::recv(two.raw, &byte, 1, 0) == 0);
  CHECK(two.to_b->is_drained());
}

TEST_CASE("a frame that the handler refuses loses the link", "[tcp]") {
  Two two;
  two.b.refuse = "not like this";
  const auto data = pattern(10);
  two.to_b->send(message(1, data));
  two.run_until([&] { return two.a.times_lost == 1 && two.b.times_lost == 1; });
  CHECK(two.b.loss.message() == "rank 0: not like this");
}

TEST_CASE("a close frees everything and calls no handler, even if repeated", "[tcp]") {
  Two two;
  const auto data = pattern(10);
  auto owner = std::make_shared<CountingOwner>();
  two.to_b->send(message(1, data, owner));
  two.to_b->close();
  CHECK(owner.use_count() == 1);
  two.to_b->close();
  two.to_b->send(message(2, data, owner));
  two.to_b.reset();  // a flush is still requested
  two.run_until([&] { return two.b.times_lost == 1; });
  CHECK(two.a.times_lost == 0);
  CHECK(owner->tokens.empty());
}

namespace {

// Two ends of a TCP connection between two addresses, as between two hosts.
std::array<Fd, 2> connect_hosts() {
  const auto at = [](uint32_t last) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + last);
    return address;
  };
  const auto bound = [&](int flags, uint32_t last) {
    Fd fd(::socket(AF_INET, SOCK_STREAM | flags, 0));
    const sockaddr_in address = at(last);
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof address) == 0);
    return fd;
  };
  const Fd listener = bound(0, 2);
  REQUIRE(::listen(listener.get(), 1) == 0);
  sockaddr_in there{};
  socklen_t length = sizeof there;
  REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&there), &length) ==
          0);
  Fd near = bound(0, 1);
  REQUIRE(::connect(near.get(), reinterpret_cast<const sockaddr*>(&there), length) ==
          0);
  Fd far(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
  REQUIRE(::fcntl(near.get(), F_SETFL, O_NONBLOCK) == 0);
  return {std::move(near), std::move(far)};
}

}  // namespace

TEST_CASE("between hosts urgent messages go first over all links", "[tcp]") {
  EventLoop loop;
  const auto credit = GENERATE(size_t{0}, size_t{48 << 10});
  Uplink uplink(&loop, credit);
  struct Pair {
    RecordingHandler here, there;
    std::unique_ptr<StreamLink> out, in;
  };
  std::array<Pair, 3> pairs;
  for (Pair& p : pairs) {
    auto ends = connect_hosts();
    const auto link = [&](Fd fd, LinkHandler* handler) {
      auto stream = make_stream(&loop, Connection{std::move(fd), {}}, Lane::kBulk);
      CHECK(stream->unacknowledged() == 0);
      return std::make_unique<StreamLink>(&loop, &uplink, std::move(stream),
                                          Lane::kBulk, Rank(1), 64 << 10, handler);
    };
    p.out = link(std::move(ends[0]), &p.here);
    p.in = link(std::move(ends[1]), &p.there);
  }
  // More bytes than the sockets buffer, before any urgent message.
  const auto bulk = pattern(credit == 0 ? 12'000'000 : 6'000'000);
  const auto urgent = pattern(100'000, 5);
  auto owner = std::make_shared<CountingOwner>();
  int num_done = 0;
  size_t before = 0;
  uplink.note(0);
  for (size_t i = 0; i < pairs.size(); ++i) {
    Pair& p = pairs[i];
    p.there.on_begin = [&, i, is_sent = false](const FrameHeader&) mutable {
      if (std::exchange(is_sent, true)) return;
      uplink.note(7);
      pairs[1].out->send(message(10 + i, urgent, owner, 7));
    };
    p.there.on_end = [&, i](const FrameHeader& h) {
      if (pairs[i].there.received[h.seq] < h.total_bytes) return;
      if (h.seq == 10) before = pairs[0].there.received[1];
      if (++num_done == 6) loop.stop();
    };
    p.out->send(message(1, bulk, owner));
  }
  bool is_late = false;
  int turns = 0;
  std::function<void()> look = [&] {
    is_late = ++turns > 20'000'000;
    is_late ? loop.stop() : loop.post(look);
  };
  loop.post(look);
  loop.run();
  CHECK_FALSE(is_late);
  CHECK(owner->tokens.size() == 6);
  for (Pair& p : pairs) CHECK((p.there.messages[1] == bulk));
  for (uint64_t i = 0; i < 3; ++i) CHECK((pairs[1].there.messages[10 + i] == urgent));
  CHECK(uplink.is_ordered());
  CHECK(uplink.counters().preemptions > 0);
  CHECK(uplink.counters().inversions == 0);
  CHECK(before < bulk.size());
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/frame_sender.h"

#include <algorithm>
#include <limits>

#include "harness/catch.h"
#include "harness/recording_handler.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;

namespace {

// A stream that takes as many bytes as the test allows.
struct NarrowStream final : ByteStream {
  void start(StreamHandler*) override {}
  Result<size_t> write(std::span<const iovec> parts) override {
    ++num_writes;
    if (is_broken) return Status(Code::kPeerLost, "connection reset");
    size_t all = 0;
    for (const iovec& part : parts) {
      const size_t n = std::min(part.iov_len, room_left);
      const auto* data = static_cast<const std::byte*>(part.iov_base);
      taken.insert(taken.end(), data, data + n);
      room_left -= n;
      all += n;
    }
    return all;
  }
  void push(Urgency urgency) override { pushes.push_back(urgency); }
  void wait_for_room(bool) override {}
  bool is_drained() const override { return true; }
  Result<size_t> read(std::span<const iovec>, Caching) override { return size_t{0}; }
  void end_sending() override {}
  void hang_up() override {}
  void end() override {}

  size_t room_left = std::numeric_limits<size_t>::max();
  bool is_broken = false;
  int num_writes = 0;
  std::vector<std::byte> taken;
  std::vector<Urgency> pushes;
};

struct Sending {
  EventLoop loop;
  NarrowStream stream;
  RecordingHandler handler;
  SendCounters counters;
  FrameSender sender{&loop, &stream, &handler, 1000, &counters};
  std::shared_ptr<CountingOwner> owner = std::make_shared<CountingOwner>();
  std::vector<std::byte> data = pattern(3000);

  MessageId add(uint64_t seq, size_t bytes, Priority priority = 0) {
    OutMessage m = message(seq, data, owner, priority);
    m.bytes = m.header.total_bytes = bytes;
    return sender.add(std::move(m));
  }
  FrameSender::Written write() { return sender.write(FrameSender::whole_turn()); }
  // Number and offset of each frame that the stream has in full.
  std::vector<std::pair<uint64_t, uint64_t>> frames() const {
    std::vector<std::pair<uint64_t, uint64_t>> found;
    size_t at = 0;
    while (at + kHeaderBytes <= stream.taken.size()) {
      auto h = decode(
          std::span<const std::byte, kHeaderBytes>(&stream.taken[at], kHeaderBytes));
      REQUIRE(h.is_ok());
      at += kHeaderBytes + h->payload_bytes;
      if (at <= stream.taken.size()) found.emplace_back(h->seq, h->offset);
    }
    return found;
  }
};

using Frames = std::vector<std::pair<uint64_t, uint64_t>>;
using End = FrameSender::End;

}  // namespace

TEST_CASE("one write gathers the chunks of several messages") {
  Sending s;
  s.add(1, 2500);
  s.add(2, 10);
  CHECK_FALSE(s.sender.is_empty());
  const auto written = s.write();
  CHECK(written.end == End::kAllWritten);
  CHECK(written.bytes == s.stream.taken.size());
  CHECK(s.stream.num_writes == 1);
  CHECK(s.frames() == Frames{{1, 0}, {1, 1000}, {1, 2000}, {2, 0}});
  CHECK(s.sender.is_empty());
  CHECK(s.owner->tokens.empty());
  CHECK(s.sender.has_sent());
  s.sender.tell();
  CHECK(s.owner->tokens == std::vector<uint32_t>{1, 2});
}

TEST_CASE("a write says why it has ended") {
  Sending s;
  CHECK(s.write().end == End::kAllWritten);
  s.add(1, 2000);
  SECTION("one chunk is the whole turn of an ordered link") {
    const auto written = s.sender.write(FrameSender::one_chunk(500));
    CHECK(written.end == End::kTurnOver);
    CHECK(s.frames() == Frames{{1, 0}});
    CHECK(written.bytes < 600);
  }
  SECTION("the stream is full") {
    s.stream.room_left = 100;
    const auto written = s.write();
    CHECK(written.end == End::kWaits);
    CHECK(written.bytes == 100);
    CHECK(s.sender.has_begun());
    s.stream.room_left = 0;
    CHECK(s.write().bytes == 0);
  }
  SECTION("the stream takes no more") {
    s.stream.is_broken = true;
    CHECK(s.write().end == End::kBroken);
    CHECK_FALSE(s.sender.has_sent());
    s.sender.drop_all();
    CHECK(s.sender.is_empty());
    s.sender.tell();
    CHECK(s.owner->tokens == std::vector<uint32_t>{1});
  }
}

TEST_CASE("chosen chunks give way to a more urgent message unless they have begun") {
  Sending s;
  s.add(1, 3000);
  s.stream.room_left = 100;
  s.write();
  REQUIRE(s.sender.has_begun());
  s.add(2, 10, 5);
  s.stream.room_left = 10'000;
  CHECK(s.write().end == End::kAllWritten);
  CHECK(s.frames() == Frames{{1, 0}, {2, 0}, {1, 1000}, {1, 2000}});
}

TEST_CASE("a cancelled message sends only the rest of its begun chunk") {
  Sending s;
  const MessageId id = s.add(1, 3000);
  s.stream.room_left = 100;
  s.write();
  CHECK(s.sender.cancel(id) == 2000);
  CHECK(s.sender.has_sent());
  // The memory of the message may change from now on.
  const std::vector<std::byte> before(s.data.begin(), s.data.begin() + 1000);
  std::fill(s.data.begin(), s.data.end(), std::byte{});
  s.stream.room_left = 10'000;
  CHECK(s.write().end == End::kAllWritten);
  CHECK(s.frames() == Frames{{1, 0}});
  CHECK(
      std::equal(before.begin(), before.end(), s.stream.taken.begin() + kHeaderBytes));
  CHECK(s.sender.cancel(id) == 0);
}

TEST_CASE("a held message waits until it is let go") {
  Sending s;
  OutMessage m = message(1, s.data, s.owner);
  m.is_held = true;
  const MessageId id = s.sender.add(std::move(m));
  CHECK(s.write().bytes == 0);
  CHECK(s.sender.let_go(id));
  CHECK(s.write().bytes > 3000);
  CHECK_FALSE(s.sender.let_go(id));
}

TEST_CASE("a push has the highest urgency of the written messages") {
  Sending s;
  OutMessage m = message(1, s.data, s.owner);
  m.urgency = Urgency::kAwaited;
  s.sender.add(std::move(m));
  s.sender.push(s.write().bytes);
  CHECK(s.stream.pushes == std::vector{Urgency::kAwaited});
  s.sender.push(s.write().bytes);
  CHECK(s.stream.pushes.size() == 1);
}

TEST_CASE("a dropped message counts as sent, and a forgotten one is not reported") {
  Sending s;
  OutMessage m = message(7, s.data, s.owner);
  const MessageId first = s.sender.drop(m);
  CHECK(s.add(8, 10) > first);
  s.sender.tell();
  CHECK(s.owner->tokens == std::vector<uint32_t>{7});
  s.sender.forget();
  s.sender.tell();
  CHECK(s.owner->tokens.size() == 1);
}

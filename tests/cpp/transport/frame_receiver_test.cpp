// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/frame_receiver.h"

#include <algorithm>
#include <cstring>

#include "harness/catch.h"
#include "harness/recording_handler.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;

namespace {

// A stream with bytes that the test has put into it.
struct FilledStream final : ByteStream {
  void start(StreamHandler*) override {}
  Result<size_t> write(std::span<const iovec>) override { return size_t{0}; }
  void wait_for_room(bool) override {}
  bool is_drained() const override { return true; }
  Result<size_t> read(std::span<const iovec> parts, Caching) override {
    ++num_reads;
    if (bytes.empty() && !ending.is_ok()) return ending;
    size_t all = 0;
    for (const iovec& part : parts) {
      const size_t n = std::min(part.iov_len, bytes.size());
      std::memcpy(part.iov_base, bytes.data(), n);
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
      all += n;
    }
    return all;
  }
  void end_sending() override {}
  void hang_up() override {}
  void end() override {}

  std::vector<std::byte> bytes;
  Status ending;  // behind the bytes
  int num_reads = 0;
};

struct Receiving {
  FilledStream stream;
  RecordingHandler handler;
  FrameReceiver receiver{&stream, Lane::kBulk, Rank(1), &handler};
};

std::vector<std::byte> frame(uint64_t seq, const std::vector<std::byte>& payload,
                             uint8_t extension_bytes = 0) {
  FrameHeader h;
  h.kind = FrameKind::kData;
  h.seq = seq;
  h.extension_bytes = extension_bytes;
  h.payload_bytes = static_cast<uint32_t>(payload.size());
  h.total_bytes = payload.size();
  std::vector<std::byte> all(kHeaderBytes + extension_bytes, std::byte{7});
  encode(h, std::span<std::byte, kHeaderBytes>(all.data(), kHeaderBytes));
  all.insert(all.end(), payload.begin(), payload.end());
  return all;
}

}  // namespace

TEST_CASE("frames are received alike in one piece and byte by byte") {
  Receiving r;
  const auto payload = pattern(100);
  auto all = frame(1, payload, 5);
  const auto second = frame(2, payload);
  all.insert(all.end(), second.begin(), second.end());
  const size_t step = GENERATE(size_t{1}, size_t{3}, size_t{1000});
  for (size_t at = 0; at < all.size(); at += step) {
    const size_t to = std::min(all.size(), at + step);
    r.stream.bytes = {all.begin() + static_cast<ptrdiff_t>(at),
                      all.begin() + static_cast<ptrdiff_t>(to)};
    CHECK_FALSE(r.receiver.read_some());
    if (at == 0 && step == 1000) break;
    // Only the payload of the frame that is being received counts.
    if (r.receiver.incoming() != nullptr) CHECK(r.receiver.num_received() < 100);
  }
  CHECK(r.handler.order == std::vector<uint64_t>{1, 2});
  CHECK(r.handler.messages[1] == payload);
  CHECK(r.handler.messages[2] == payload);
  CHECK(r.handler.extensions[1].size() == 5);
  CHECK(r.receiver.incoming() == nullptr);
  CHECK(r.receiver.num_received() == 0);
}

TEST_CASE("a dropped payload is read and not written any more") {
  Receiving r;
  const auto payload = pattern(100);
  const auto all = frame(1, payload);
  r.stream.bytes = {all.begin(), all.begin() + kHeaderBytes + 10};
  CHECK_FALSE(r.receiver.read_some());
  CHECK(r.receiver.num_received() == 10);
  r.receiver.drop_incoming();
  r.stream.bytes = {all.begin() + kHeaderBytes + 10, all.end()};
  CHECK_FALSE(r.receiver.read_some());
  CHECK(r.handler.received[1] == 100);
  CHECK(
      std::equal(payload.begin(), payload.begin() + 10, r.handler.messages[1].begin()));
  CHECK(r.handler.messages[1][10] == std::byte{});
}

TEST_CASE("a receiver says why no frame will come, and reads no more") {
  Receiving r;
  SECTION("an orderly end") {
    r.stream.ending = Status(Code::kPeerLost, "");
    const auto why = r.receiver.read_some();
    REQUIRE(why);
    CHECK(why->code() == Code::kPeerLost);
    CHECK(why->message() == "rank 1 closed the connection");
  }
  SECTION("a broken stream") {
    r.stream.ending = Status(Code::kPeerLost, "connection reset");
    const auto why = r.receiver.read_some();
    REQUIRE(why);
    CHECK(why->message() == "receiving from rank 1 failed: connection reset");
    CHECK(why->culprit() == Rank(1));
  }
  SECTION("bytes that are no frame") {
    r.stream.bytes = pattern(kHeaderBytes);
    const auto why = r.receiver.read_some();
    REQUIRE(why);
    CHECK(why->code() == Code::kProtocol);
  }
  SECTION("a frame that the handler refuses") {
    r.handler.refuse = "too long";
    r.stream.bytes = frame(1, {});
    const auto why = r.receiver.read_some();
    REQUIRE(why);
    CHECK(why->message() == "rank 1: too long");
  }
  const int before = r.stream.num_reads;
  CHECK_FALSE(r.receiver.read_some());
  CHECK(r.stream.num_reads == before);
}

TEST_CASE("a handler that stops the receiver gets no further frame") {
  Receiving r;
  auto all = frame(1, pattern(10));
  const auto second = frame(2, pattern(10));
  all.insert(all.end(), second.begin(), second.end());
  r.stream.bytes = all;
  SECTION("at the end of a frame") {
    r.handler.on_end = [&](const FrameHeader&) { r.receiver.stop(); };
    CHECK_FALSE(r.receiver.read_some());
    CHECK(r.handler.received[1] == 10);
  }
  SECTION("at its beginning") {
    r.handler.on_begin = [&](const FrameHeader&) { r.receiver.stop(); };
    CHECK_FALSE(r.receiver.read_some());
    CHECK(r.handler.received[1] == 0);
  }
  CHECK(r.handler.order == std::vector<uint64_t>{1});
  CHECK(r.stream.num_reads == 1);
}

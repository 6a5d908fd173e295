// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/frame.h"

#include <random>

#include "harness/catch.h"
#include "harness/hex.h"

using namespace aikido;
using namespace aikido::transport;
using aikido::testing::from_hex;
using aikido::testing::to_hex;

namespace {

using Raw = std::array<std::byte, kHeaderBytes>;

Raw encoded(const FrameHeader& header) {
  Raw raw;
  encode(header, raw);
  return raw;
}

// The example of PROTOCOL.md.
FrameHeader example() {
  FrameHeader h;
  h.kind = FrameKind::kContrib;
  h.extension_bytes = 16;
  h.shard = 2;
  h.payload_bytes = 4096;
  h.epoch = 1;
  h.seq = 5;
  h.total_bytes = 16384;
  h.called = 7;
  h.acked = -3;
  h.view = 2;
  return h;
}
constexpr const char* kExample =
    "41 4b 17 01 10 00 02 00  00 10 00 00 01 00 00 00"
    "00 00 00 00 fd ff ff ff  05 00 00 00 00 00 00 00"
    "00 00 00 00 00 00 00 00  00 40 00 00 00 00 00 00"
    "07 00 00 00 00 00 00 00  02 00 00 00 9d 35 6d 8e";

}  // namespace

TEST_CASE("the example of PROTOCOL.md equals the encoded bytes") {
  CHECK(to_hex(encoded(example())) == to_hex(from_hex(kExample)));
  auto decoded = decode(encoded(example()));
  REQUIRE(decoded.is_ok());
  CHECK(*decoded == example());
}

TEST_CASE("headers survive encoding and decoding") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    FrameHeader h;
    h.kind = static_cast<FrameKind>(1 + random() % kMaxFrameKind);
    h.extension_bytes = static_cast<uint8_t>(random());
    h.block = static_cast<uint8_t>(random());
    h.shard = static_cast<uint16_t>(random());
    h.payload_bytes = static_cast<uint32_t>(random());
    h.epoch = static_cast<uint32_t>(random());
    h.tag = static_cast<int32_t>(random());
    h.seq = random();
    h.offset = random() >> 1;
    h.total_bytes = h.offset + h.payload_bytes + (random() >> 8);
    h.called = random();
    h.acked = static_cast<int32_t>(random());
    h.view = static_cast<uint32_t>(random());
    auto decoded = decode(encoded(h));
    REQUIRE(decoded.is_ok());
    REQUIRE(*decoded == h);
  }
}

TEST_CASE("a header with any flipped bit is refused") {
  const Raw good = encoded(example());
  for (size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    Raw bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    auto decoded = decode(bad);
    INFO("bit " << bit);
    REQUIRE_FALSE(decoded.is_ok());
    REQUIRE(decoded.status().code() == Code::kProtocol);
  }
}

TEST_CASE("random bytes are no header") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 10'000; ++i) {
    Raw raw;
    for (auto& b : raw) b = static_cast<std::byte>(random());
    if (i % 2 == 0) std::copy_n(encoded(example()).begin(), 4, raw.begin());
    REQUIRE_FALSE(decode(raw).is_ok());
  }
}

TEST_CASE("the error for another version names both numbers") {
  Raw raw = encoded(example());
  raw[2] = std::byte{200};
  CHECK(decode(raw).status().message() ==
        "this is no aikido frame: protocol version 200, this build speaks 23; install "
        "the "
        "same aikido on every rank");
}

TEST_CASE("unknown kinds and payloads beyond their message are refused") {
  FrameHeader h = example();
  h.kind = static_cast<FrameKind>(kMaxFrameKind + 1);
  CHECK(decode(encoded(h))
            .status()
            .message()
            .find(concat("unknown kind ", kMaxFrameKind + 1)) != std::string::npos);
  h = example();
  h.offset = 16'000;
  CHECK(decode(encoded(h))
            .status()
            .message()
            .find("bytes 16000+4096 of a message of "
                  "16384") != std::string::npos);
  h.offset = ~uint64_t{0};
  CHECK_FALSE(decode(encoded(h)).is_ok());
}

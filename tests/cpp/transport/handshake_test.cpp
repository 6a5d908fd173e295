// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/handshake.h"

#include "harness/catch.h"
#include "harness/hex.h"

using namespace aikido;
using namespace aikido::transport;
using aikido::testing::to_hex;

namespace {

Hello sample() {
  Hello hello;
  for (size_t i = 0; i < kTokenBytes; ++i) hello.token[i] = static_cast<std::byte>(i);
  hello.rank = Rank(3);
  hello.size = 8;
  hello.lane = Lane::kControl;
  hello.is_reliable = true;
  hello.agreed = "a=1";
  return hello;
}

}  // namespace

TEST_CASE("the greeting of PROTOCOL.md equals the encoded bytes") {
  CHECK(to_hex(encode(sample())) ==
        "41 49 4b 49 44 4f 17 00 43 00 00 00 00 01 02 03\n"
        "04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 11 12 13\n"
        "14 15 16 17 18 19 1a 1b 1c 1d 1e 1f 03 00 00 00\n"
        "08 00 00 00 01 00 00 00 01 00 00 00 03 00 00 00\n"
        "61 3d 31");
  CHECK(to_hex(encode_welcome("no")) ==
        "57 45 4c 43 4f 4d 17 00 12 00 00 00 02 00 00 00\n6e 6f");
}

TEST_CASE("greetings survive encoding and decoding") {
  auto hello = decode_hello(encode(sample()));
  REQUIRE(hello.is_ok());
  REQUIRE(hello->has_value());
  CHECK(equal_tokens((*hello)->token, sample().token));
  CHECK((*hello)->rank == Rank(3));
  CHECK((*hello)->size == 8);
  CHECK((*hello)->lane == Lane::kControl);
  CHECK((*hello)->is_reliable);
  CHECK((*hello)->agreed == "a=1");
  for (const std::string& text : {std::string(), std::string("no room")}) {
    auto refusal = decode_welcome(encode_welcome(text));
    REQUIRE(refusal.is_ok());
    CHECK(**refusal == text);
  }
}

TEST_CASE("a greeting that is cut anywhere needs more bytes") {
  const auto hello = encode(sample());
  for (size_t n = 0; n < hello.size(); ++n) {
    auto decoded = decode_hello(std::span(hello).first(n));
    REQUIRE(decoded.is_ok());
    REQUIRE_FALSE(decoded->has_value());
  }
  const auto welcome = encode_welcome("no");
  for (size_t n = 0; n < welcome.size(); ++n) {
    auto decoded = decode_welcome(std::span(welcome).first(n));
    REQUIRE(decoded.is_ok());
    REQUIRE_FALSE(decoded->has_value());
  }
}

TEST_CASE("texts of a greeting are cut at a kilobyte") {
  Hello hello = sample();
  hello.agreed = std::string(5000, 'x');
  const auto bytes = encode(hello);
  CHECK(bytes.size() <= kMaxHelloBytes);
  auto decoded = decode_hello(bytes);
  REQUIRE(decoded.is_ok());
  CHECK((*decoded)->agreed == std::string(1024, 'x'));
}

TEST_CASE("bytes that are no greeting are refused at the first byte") {
  const auto code = [](auto change) {
    auto bytes = encode(sample());
    change(bytes);
    auto decoded = decode_hello(bytes);
    return decoded.status().code();
  };
  CHECK(code([](auto& b) { b.assign(1, std::byte{'G'}); }) == Code::kProtocol);
  CHECK(code([](auto& b) { b[5] = std::byte{0}; }) == Code::kProtocol);
  CHECK(code([](auto& b) { b[8] = std::byte{5}; }) == Code::kProtocol);     // length 5
  CHECK(code([](auto& b) { b[9] = std::byte{0xff}; }) == Code::kProtocol);  // too long
  CHECK(code([](auto& b) { b[52] = std::byte{2}; }) == Code::kProtocol);    // lane
  CHECK(code([](auto& b) { b[56] = std::byte{200}; }) == Code::kProtocol);  // text
  CHECK(code([](auto& b) { b[56] = std::byte{2}; }) == Code::kProtocol);    // rest
  CHECK(code([](auto&) {}) == Code::kOk);
}

TEST_CASE("the error for a greeting of another version names both numbers") {
  auto bytes = encode(sample());
  bytes[6] = std::byte{200};
  CHECK(decode_hello(bytes).status().message() ==
        "the other side speaks protocol version 200, this build 23; install the same "
        "aikido on every rank");
}

TEST_CASE("tokens differ by any byte") {
  for (size_t i = 0; i < kTokenBytes; ++i) {
    Token other = sample().token;
    other[i] ^= std::byte{0x80};
    CHECK_FALSE(equal_tokens(other, sample().token));
  }
}

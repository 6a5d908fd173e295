// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/message.h"

#include <limits>

#include "harness/catch.h"
#include "harness/hex.h"

using namespace aikido;
using namespace aikido::reassign;

namespace {

Message grant() {
  Message message{MessageKind::kGrant, 7, 9, {}, Rank(2), 5, {{11, 1.5}, {12, 2}}};
  message.news = {std::chrono::nanoseconds(300), 2.5, 4, 6};
  return message;
}

std::string error_of(std::vector<std::byte> bytes) {
  const auto decoded = decode_message(bytes);
  return decoded ? "" : decoded.status().message();
}

std::vector<std::byte> changed(std::vector<std::byte> bytes, size_t at, int value) {
  bytes[at] = static_cast<std::byte>(value);
  return bytes;
}

}  // namespace

TEST_CASE("a message about moved work comes out as it went in") {
  for (uint8_t kind = 1; kind <= static_cast<uint8_t>(MessageKind::kStepEnd); ++kind) {
    Message message = grant();
    message.kind = static_cast<MessageKind>(kind);
    CHECK(name_of(message.kind) != "unknown");
    const bool is_grant = message.kind == MessageKind::kGrant;
    if (!is_grant) message.items.clear();
    if (!is_grant && message.kind != MessageKind::kDone) {
      message.owner = kNoRank;
      message.first = 0;
    }
    const auto bytes = encode(message);
    auto decoded = decode_message(bytes);
    REQUIRE(decoded);
    CHECK(*decoded == message);
  }
}

TEST_CASE("the layout of version 1 does not change") {
  CHECK(encode(grant()) ==
        testing::from_hex("01 03 0200 07000000 0900000000000000 2c01000000000000"
                          "0000000000000440 04000000 0000c040 02000000 05000000"
                          "0b00000000000000 000000000000f83f"
                          "0c00000000000000 0000000000000040"));
}

TEST_CASE("every truncated message is refused with a sentence") {
  const auto bytes = encode(grant());
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK_FALSE(
        error_of({bytes.begin(), bytes.begin() + static_cast<long>(size)}).empty());
  auto longer = bytes;
  longer.push_back(std::byte{0});
  CHECK(error_of(longer) ==
        "a message about moved work of kind grant has 81 bytes instead of 80; check "
        "that all ranks run the same version");
}

TEST_CASE("a message with nonsense is refused with a sentence that names it") {
  const auto bytes = encode(grant());
  CHECK(error_of(changed(bytes, 0, 2)).find("version 2, and this rank has 1") !=
        std::string::npos);
  CHECK(error_of(changed(bytes, 1, 0)).find("unknown kind 0") != std::string::npos);
  CHECK(error_of(changed(bytes, 1, 10)).find("unknown kind 10") != std::string::npos);
  CHECK(error_of(changed(bytes, 1, 1)).find("kind progress has 2 items") !=
        std::string::npos);
  CHECK(error_of(changed(bytes, 2, 0)).find("kind grant has 0 items") !=
        std::string::npos);
  CHECK(error_of(changed(bytes, 23, 0xff)).find("is negative") != std::string::npos);
  CHECK(error_of(changed(bytes, 31, 0xff)).find("speed or cost") != std::string::npos);
  CHECK(error_of(changed(bytes, 43, 0x80)).find("as the owner") != std::string::npos);

  Message bad = grant();
  bad.items[1].cost = 0;
  CHECK(error_of(encode(bad)).find("costs are above 0") != std::string::npos);
  bad.items[1].cost = std::numeric_limits<double>::quiet_NaN();
  CHECK(error_of(encode(bad)).find("costs are above 0") != std::string::npos);
  bad = grant();
  bad.first = 0xffffffff;
  CHECK(error_of(encode(bad)).find("more than a list") != std::string::npos);
}

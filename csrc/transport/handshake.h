// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Handshake of two members before the first frame: HELLO from the dialling member,
// WELCOME from the other. Pure encoding; PROTOCOL.md has the bytes. The token comes
// from the rendezvous store, so only a process that can read the store is accepted.

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "transport/frame.h"

namespace aikido::transport {

inline constexpr size_t kTokenBytes = 32;
using Token = std::array<std::byte, kTokenBytes>;

struct Hello {
  Token token{};  // names the group and proves that the dialler belongs to it
  Rank rank;      // of the dialling member
  int32_t size = 0;
  Lane lane = Lane::kBulk;   // lane of this connection
  bool is_reliable = false;  // the role of the dialling member
  // Settings that must be equal on all members, as text ("name=value;..."), at most 1
  // KiB.
  std::string agreed;
};

// Longest encoded HELLO. A peer that announces a longer HELLO is no member.
inline constexpr size_t kMaxHelloBytes = 2048;

std::vector<std::byte> encode(const Hello& hello);
// Empty: more bytes are needed. kProtocol: these bytes are no HELLO of this version.
Result<std::optional<Hello>> decode_hello(std::span<const std::byte> bytes);

// Not empty: these bytes begin a HELLO of this other version.
std::optional<uint16_t> other_version(std::span<const std::byte> bytes);
// Sentence about the other version.
std::string different_version(uint16_t theirs);

// Answer to a HELLO. An empty refusal means welcome. At most 1 KiB of text.
std::vector<std::byte> encode_welcome(const std::string& refusal);
// Empty: more bytes are needed.
Result<std::optional<std::string>> decode_welcome(std::span<const std::byte> bytes);

// True if equal. The time does not depend on the place of a difference.
bool equal_tokens(const Token& a, const Token& b);

}  // namespace aikido::transport

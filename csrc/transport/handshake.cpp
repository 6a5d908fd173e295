// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/handshake.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace aikido::transport {
namespace {

constexpr std::array<char, 6> kHelloMagic = {'A', 'I', 'K', 'I', 'D', 'O'};
constexpr std::array<char, 6> kWelcomeMagic = {'W', 'E', 'L', 'C', 'O', 'M'};
constexpr size_t kMaxText = 1024;
// Magic, version and total length.
constexpr size_t kPreambleBytes = 6 + 2 + 4;

template <class T>
void append(std::vector<std::byte>& out, const T& value) {
  // Not insert(): g++ 12 warns about an overflow there that does not exist.
  const size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

void append(std::vector<std::byte>& out, const std::string& text) {
  const auto length = static_cast<uint32_t>(std::min(text.size(), kMaxText));
  append(out, length);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), bytes, bytes + length);
}

std::vector<std::byte> begin(const std::array<char, 6>& magic) {
  std::vector<std::byte> out;
  append(out, magic);
  append(out, uint16_t{kProtocolVersion});
  append(out, uint32_t{0});
  return out;
}

// The length is only known now; it replaces the placeholder of begin().
void end(std::vector<std::byte>& out) {
  const auto length = static_cast<uint32_t>(out.size());
  std::memcpy(out.data() + 8, &length, sizeof length);
}

// Reads values from a message with a valid preamble. `ok` becomes false if the message
// is too short.
struct Reader {
  std::span<const std::byte> bytes;
  bool ok = true;

  template <class T>
  T take() {
    T value{};
    if (bytes.size() < sizeof value) {
      ok = false;
      return value;
    }
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes = bytes.subspan(sizeof value);
    return value;
  }
  std::string take_text() {
    const auto length = take<uint32_t>();
    if (length > kMaxText || length > bytes.size()) {
      ok = false;
      return {};
    }
    std::string text(reinterpret_cast<const char*>(bytes.data()), length);
    bytes = bytes.subspan(length);
    return text;
  }
};

// Body of a complete message. Empty while the message is incomplete.
Result<std::optional<Reader>> open(std::span<const std::byte> bytes,
                                   const std::array<char, 6>& magic) {
  // Compares as many bytes as have arrived, so that a stranger is noticed early.
  const size_t compare = std::min(bytes.size(), magic.size());
  if (!std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(compare),
                  magic.begin(),
                  [](std::byte a, char b) { return static_cast<char>(a) == b; })) {
    return Status(Code::kProtocol, "the other side does not speak aikido");
  }
  if (bytes.size() < kPreambleBytes) return std::optional<Reader>();
  Reader reader{bytes.subspan(magic.size())};
  const auto version = reader.take<uint16_t>();
  if (version != kProtocolVersion) {
    return Status(Code::kProtocol, different_version(version));
  }
  const auto length = reader.take<uint32_t>();
  if (length < kPreambleBytes || length > kMaxHelloBytes) {
    return Status(Code::kProtocol, concat("a greeting of ", length, " bytes"));
  }
  if (bytes.size() < length) return std::optional<Reader>();
  reader.bytes = bytes.subspan(kPreambleBytes, length - kPreambleBytes);
  return std::optional<Reader>(reader);
}

}  // namespace

std::vector<std::byte> encode(const Hello& hello) {
  auto out = begin(kHelloMagic);
  append(out, hello.token);
  append(out, hello.rank.value);
  append(out, hello.size);
  append(out, uint32_t{static_cast<uint8_t>(hello.lane)});
  append(out, uint32_t{hello.is_reliable});
  append(out, hello.agreed);
  end(out);
  return out;
}

Result<std::optional<Hello>> decode_hello(std::span<const std::byte> bytes) {
  auto opened = open(bytes, kHelloMagic);
  if (!opened) return opened.status();
  if (!*opened) return std::optional<Hello>();
  Reader& reader = **opened;
  Hello hello;
  hello.token = reader.take<Token>();
  hello.rank = Rank(reader.take<int32_t>());
  hello.size = reader.take<int32_t>();
  const auto lane = reader.take<uint32_t>();
  hello.lane = static_cast<Lane>(lane);
  const auto role = reader.take<uint32_t>();
  hello.is_reliable = role == 1;
  hello.agreed = reader.take_text();
  if (!reader.ok || !reader.bytes.empty() || lane >= kNumLanes || role > 1) {
    return Status(Code::kProtocol, "a malformed HELLO");
  }
  return std::optional<Hello>(std::move(hello));
}

std::optional<uint16_t> other_version(std::span<const std::byte> bytes) {
  if (bytes.size() < kPreambleBytes) return std::nullopt;
  const auto is_same = [](char a, std::byte b) { return a == static_cast<char>(b); };
  if (!std::equal(kHelloMagic.begin(), kHelloMagic.end(), bytes.begin(), is_same))
    return std::nullopt;
  uint16_t version = 0;
  std::memcpy(&version, bytes.data() + kHelloMagic.size(), sizeof version);
  if (version == kProtocolVersion) return std::nullopt;
  return version;
}

std::string different_version(uint16_t theirs) {
  return concat("the other side speaks protocol version ", theirs, ", this build ",
                int{kProtocolVersion}, "; install the same aikido on every rank");
}

std::vector<std::byte> encode_welcome(const std::string& refusal) {
  auto out = begin(kWelcomeMagic);
  append(out, refusal);
  end(out);
  return out;
}

Result<std::optional<std::string>> decode_welcome(std::span<const std::byte> bytes) {
  auto opened = open(bytes, kWelcomeMagic);
  if (!opened) return opened.status();
  if (!*opened) return std::optional<std::string>();
  Reader& reader = **opened;
  auto refusal = reader.take_text();
  if (!reader.ok || !reader.bytes.empty()) {
    return Status(Code::kProtocol, "a malformed WELCOME");
  }
  // The peer's text goes into error messages, so control characters are removed.
  return std::optional<std::string>(printable(refusal));
}

bool equal_tokens(const Token& a, const Token& b) {
  // Compares all bytes, so that the time does not depend on the first difference.
  std::byte difference{};
  for (size_t i = 0; i < kTokenBytes; ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/handle.h"

#include <charconv>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace aikido::membership {
namespace {

constexpr std::string_view kVersion = "aikido1";
constexpr std::string_view kReliable = "reliable";
constexpr size_t kMaxBytes = 256;
// Length of the shown part of an invalid text: enough to recognise it.
constexpr size_t kShownBytes = 24;

template <class T>
std::string to_hex(T value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(2 * sizeof value, '0');
  for (size_t i = text.size(); i-- > 0; value = static_cast<T>(value >> 4))
    text[i] = kDigits[static_cast<size_t>(value & 15)];
  return text;
}

// Returns false unless the whole text is a number in the spelling that to_hex() writes.
template <class T>
bool read_hex(std::string_view text, T& value) {
  if (text.size() != 2 * sizeof value) return false;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value, 16);
  return parsed.ec == std::errc() && parsed.ptr == end && to_hex(value) == text;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find('/');
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

MemberHandle MemberHandle::random(transport::Address address, bool is_reliable) {
  std::random_device source;
  MemberHandle handle;
  handle.address = std::move(address);
  handle.is_reliable = is_reliable;
  handle.id = uint64_t{source()} << 32 | source();
  for (std::byte& b : handle.secret) b = static_cast<std::byte>(source());
  return handle;
}

std::string MemberHandle::to_string() const {
  std::string text =
      concat(kVersion, '/', address.host, '/', address.port, '/', to_hex(id), '/');
  for (const std::byte b : secret) text += to_hex(std::to_integer<uint8_t>(b));
  if (is_reliable) text += concat('/', kReliable);
  return text;
}

Result<MemberHandle> MemberHandle::parse(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    return Status(
        Code::kInvalidArgument,
        concat("\"", printable(text.substr(0, kShownBytes)),
               text.size() > kShownBytes ? "..." : "", "\" is no handle: ", why,
               "; pass what aikido_torch.reconfigure_handle() gave on that member, "
               "unchanged"));
  };
  if (text.size() > kMaxBytes) return refuse(concat("it has ", text.size(), " bytes"));
  const auto parts = split(text);
  if (parts.front() != kVersion)
    return refuse(concat("it does not begin with ", kVersion));
  if (parts.size() != 5 && parts.size() != 6)
    return refuse(concat("it has ", parts.size(), " parts, not 5 or 6"));
  if (parts.size() == 6 && parts.back() != kReliable)
    return refuse(concat("its last part is not \"", kReliable, "\""));
  auto address = transport::Address::parse(concat(parts[1], ' ', parts[2]));
  if (!address || !transport::to_socket_address(*address) ||
      std::to_string(address->port) != parts[2]) {
    return refuse("its address is none");
  }
  MemberHandle handle;
  handle.address = *address;
  handle.is_reliable = parts.size() == 6;
  if (!read_hex(parts[3], handle.id)) return refuse("its id is none");
  if (parts[4].size() != 2 * handle.secret.size()) return refuse("its secret is none");
  for (size_t i = 0; i < handle.secret.size(); ++i) {
    uint8_t byte = 0;
    if (!read_hex(parts[4].substr(2 * i, 2), byte)) return refuse("its secret is none");
    handle.secret[i] = std::byte{byte};
  }
  return handle;
}

}  // namespace aikido::membership

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Bytes as text, for comparison with expected bytes. Any thread.

#include <cctype>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace aikido::testing {

// "41 4b 01", sixteen bytes per line.
inline std::string to_hex(std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto value = std::to_integer<unsigned>(bytes[i]);
    if (i > 0) text += i % 16 == 0 ? '\n' : ' ';
    text += kDigits[value / 16];
    text += kDigits[value % 16];
  }
  return text;
}

// Reads pairs of hex digits and skips all other characters.
inline std::vector<std::byte> from_hex(const std::string& text) {
  std::string digits;
  for (const char c : text)
    if (std::isxdigit(static_cast<unsigned char>(c)) != 0) digits += c;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(
        static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace aikido::testing

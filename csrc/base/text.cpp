// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/text.h"

#include <cstdint>

namespace aikido {
namespace {

// Length of the character at the front; 0 if there is none. RFC 3629, section 4: no
// character longer than need be, no surrogates, nothing beyond U+10FFFF.
size_t character_bytes(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  size_t n = 0;
  uint32_t value = 0, least = 0;
  if (first >= 0xc0 && first < 0xe0) n = 2, value = first & 0x1fu, least = 0x80;
  if (first >= 0xe0 && first < 0xf0) n = 3, value = first & 0x0fu, least = 0x800;
  if (first >= 0xf0 && first < 0xf8) n = 4, value = first & 0x07u, least = 0x10000;
  if (n == 0 || text.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    value = value << 6 | (at(i) & 0x3fu);
  }
  const bool is_surrogate = value >= 0xd800 && value < 0xe000;
  return value < least || is_surrogate || value > 0x10ffff ? 0 : n;
}

bool is_control(char c) {
  return (static_cast<uint8_t>(c) < 0x20 && c != '\n') || c == 0x7f;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t n = character_bytes(text);
    if (n == 0 || is_control(text[0])) {
      out += '?';
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

std::string quoted(std::string_view text) {
  constexpr size_t kMost = 60;
  const bool is_long = text.size() > kMost;
  return '"' + printable(text.substr(0, kMost)) + (is_long ? "...\"" : "\"");
}

}  // namespace aikido

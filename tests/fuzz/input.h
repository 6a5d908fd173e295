// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Reads choices from the bytes of a fuzzer, front to back. When the bytes are used up,
// every choice is 0, so a shorter input is a simpler run. Any thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace aikido::fuzz {

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool is_empty() const { return bytes_.empty(); }
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  // A number in 0 .. n-1, for n of at most 65536.
  size_t below(size_t n) {
    if (n <= 1) return 0;
    return (n <= 256 ? byte() : byte() + size_t{256} * byte()) % n;
  }
  bool flip() { return (byte() & 1) != 0; }
  // Any value: half of them are small, and a quarter is near a power of two.
  uint64_t number() {
    const uint8_t how = byte();
    if (how < 128) return how;
    if (how < 192) return (uint64_t{1} << (how % 64)) + byte() - 1;
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  std::vector<std::byte> take(size_t n) {
    n = std::min(n, bytes_.size());
    std::vector<std::byte> out(n);
    for (std::byte& b : out) b = static_cast<std::byte>(byte());
    return out;
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace aikido::fuzz

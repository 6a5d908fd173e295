// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Numbers to bytes and back, in the order of the machine (little endian, as
// everywhere on the wire). Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace aikido {

template <class T>
requires std::is_trivially_copyable_v<T>
void append_value(std::vector<std::byte>& out, const T& value) {
  // Not insert(): g++ 12 sees an overflow in it that is none.
  const size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

// Takes values off the front of bytes; ok turns false, for good, when they end.
struct WireReader {
  std::span<const std::byte>& bytes;
  bool ok = true;

  template <class T>
  requires std::is_trivially_copyable_v<T> T take() {
    T value{};
    if (!ok || bytes.size() < sizeof value) {
      ok = false;
      return value;
    }
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes = bytes.subspan(sizeof value);
    return value;
  }
  // Number of following entries of at least `bytes_each`; fails if the bytes are too
  // few.
  size_t take_count(size_t bytes_each) {
    const auto count = take<uint32_t>();
    if (count > bytes.size() / bytes_each) ok = false;
    return ok ? count : 0;
  }
};

}  // namespace aikido

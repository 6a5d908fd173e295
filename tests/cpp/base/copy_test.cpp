// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/copy.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

namespace aikido {
namespace {

std::vector<std::byte> pattern(size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = std::byte(i * 131 + i / 256 + 1);
  return data;
}

}  // namespace

TEST_CASE("a copy has all bytes and changes no others, by each method") {
  const auto from = pattern(4200);
  constexpr std::byte kUntouched{0xee};
  const auto check = [&](auto copy_bytes) {
    for (size_t to_offset = 0; to_offset < 70; to_offset += 3) {
      for (const size_t from_offset : {0, 1, 8, 63}) {
        for (const size_t bytes :
             {0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 191, 192, 4000}) {
          std::vector<std::byte> to(4200, kUntouched);
          copy_bytes(to.data() + to_offset, from.data() + from_offset, bytes);
          std::vector<std::byte> expected(4200, kUntouched);
          std::memcpy(expected.data() + to_offset, from.data() + from_offset, bytes);
          REQUIRE((to == expected));
        }
      }
    }
  };
  for (const CopyFn way : copies_past_caches()) check(way);
  for (const Caching caching : {Caching::kKept, Caching::kPassed}) {
    check([&](std::byte* to, const std::byte* source, size_t bytes) {
      copy(to, source, bytes, caching);
    });
  }
}

TEST_CASE("only large copies bypass the caches") {
  CHECK(caching_of(kPassedBytes - 1) == Caching::kKept);
  CHECK(caching_of(kPassedBytes) == Caching::kPassed);
}

}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "kernels/digest.h"

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "harness/catch.h"

namespace aikido::kernels {
namespace {

std::vector<unsigned char> random_bytes(size_t size) {
  std::mt19937 generator(7);
  std::vector<unsigned char> bytes(size);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(generator());
  return bytes;
}

TEST_CASE("equal bytes have equal digests wherever they lie") {
  for (const size_t size : {0, 1, 7, 8, 63, 64, 65, 1000}) {
    const auto bytes = random_bytes(size);
    std::vector<unsigned char> moved(size + 3);
    if (size > 0) std::memcpy(moved.data() + 3, bytes.data(), size);
    CHECK(digest(bytes.data(), size) == digest(moved.data() + 3, size));
  }
}

TEST_CASE("each flipped bit and each length gives another digest") {
  for (const size_t size : {1, 9, 64, 200}) {
    auto bytes = random_bytes(size);
    std::set<uint64_t> seen{digest(bytes.data(), size)};
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
      CHECK(seen.insert(digest(bytes.data(), size)).second);
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    }
    bytes.push_back(0);
    CHECK(seen.insert(digest(bytes.data(), size + 1)).second);
  }
}

TEST_CASE("two changes that would cancel out in a sum do not") {
  std::vector<uint64_t> words(256, 0x3f8000003f800000);
  std::set<uint64_t> seen{digest(words.data(), 2048)};
  for (size_t i = 1; i < words.size(); ++i) {
    for (const uint64_t change : {uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 63}) {
      words[0] += change;
      words[i] -= change;
      CHECK(seen.insert(digest(words.data(), 2048)).second);
      words[0] -= change;
      words[i] += change;
    }
  }
}

}  // namespace
}  // namespace aikido::kernels

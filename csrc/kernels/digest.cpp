// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "kernels/digest.h"

#include <array>
#include <cstring>

namespace aikido::kernels {
namespace {

// A multiplication takes 3 to 4 cycles and one can start in each, so eight independent
// lanes are as fast as memory: about 8 bytes per cycle.
constexpr size_t kLanes = 8;
constexpr size_t kBlock = kLanes * sizeof(uint64_t);
constexpr uint64_t kPrime = 0x9e3779b185ebca87;

__extension__ using Wide = unsigned __int128;

// Both halves of the product: the lower one alone moves differences to higher bits
// only, so that two changes of a sign bit would cancel out.
uint64_t mixed(uint64_t state, uint64_t word) {
  const Wide product = static_cast<Wide>(state ^ word) * kPrime;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

uint64_t digest(const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::array<uint64_t, kLanes> lanes{};
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = kPrime * (i + 1);
  size_t left = bytes;
  for (; left >= kBlock; left -= kBlock, at += kBlock) {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), at, kBlock);
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = mixed(lanes[i], words[i]);
  }
  std::array<uint64_t, kLanes> rest{};
  if (left > 0) std::memcpy(rest.data(), at, left);
  uint64_t found = bytes;
  for (size_t i = 0; i < kLanes; ++i) {
    found = mixed(found, lanes[i]);
    found = mixed(found, rest[i]);
  }
  return mixed(found, 0);
}

}  // namespace aikido::kernels

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Copies of host memory that bypass the caches. A plain store reads the cache line that
// it replaces, and evicts another line. Both are useless for data that is too large to
// stay in the cache until it is read. Any thread.

#include <cstddef>
#include <vector>

namespace aikido {

// Kind of a copy.
enum class Caching {
  kKept,    // as std::memcpy: the data is read soon
  kPassed,  // past the caches: the data is large, and nobody reads it soon
};

// Smallest size of data that goes past the caches if nobody reads it at once.
inline constexpr size_t kPassedBytes = 1 << 20;
constexpr Caching caching_of(size_t bytes) {
  return bytes >= kPassedBytes ? Caching::kPassed : Caching::kKept;
}

// As std::memcpy. A thread that sees a later store of this thread also sees the copy,
// with both kinds.
void copy(std::byte* to, const std::byte* from, size_t bytes, Caching caching);

using CopyFn = void (*)(std::byte* to, const std::byte* from, size_t bytes);
// Copies past the caches that this CPU supports; copy() uses the last one.
std::vector<CopyFn> copies_past_caches();

}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Copies of host memory that leave the caches to others. A plain store reads the cache
// line that it is about to replace, and puts something else out of the cache. Of what
// is too large to be still there when somebody looks at it, both are in vain. Any
// thread.

#include <cstddef>
#include <vector>

namespace aikido {

// Which of them is used where there is a choice.
enum class Caching {
  kKept,    // as std::memcpy: somebody looks at it soon
  kPassed,  // past the caches: it is large, and nobody does
};

// Of what nobody reads at once, and is so large in all.
inline constexpr size_t kPassedBytes = 1 << 20;
constexpr Caching caching_of(size_t bytes) {
  return bytes >= kPassedBytes ? Caching::kPassed : Caching::kKept;
}

// As std::memcpy. Past the caches what this thread has copied is seen by those who see
// what it stores next, as ever.
void copy(std::byte* to, const std::byte* from, size_t bytes, Caching caching);

using CopyFn = void (*)(std::byte* to, const std::byte* from, size_t bytes);
// The ways past the caches that this CPU has; copy() goes the last one.
std::vector<CopyFn> copies_past_caches();

}  // namespace aikido

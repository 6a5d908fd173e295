// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace aikido {

#if defined(__SSE2__)
namespace {

constexpr size_t kLine = 64;

// Whole lines only: of a part of one the processor has to read the rest.
void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head =
      std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
    const auto* in = reinterpret_cast<const __m128i*>(from);
    auto* out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  // Such stores are in no order with others by themselves.
  _mm_sfence();
  std::memcpy(to, from, bytes);
}

}  // namespace
#endif

void copy(std::byte* to, const std::byte* from, size_t bytes, Caching caching) {
#if defined(__SSE2__)
  if (caching == Caching::kPassed) return copy_past_caches(to, from, bytes);
#else
  static_cast<void>(caching);
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace aikido

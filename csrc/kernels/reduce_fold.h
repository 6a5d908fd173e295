// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The fold of all dtypes but fp16 and bf16: vectors of accumulators stay in registers
// over all sources, so that nothing but the sources is read. Written with the vector
// types of gcc and clang, as reduce_half.h is. Part of
// reduce_impl.h: in an unnamed namespace, compiled once per instruction set.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/prefetch.h"
#include "kernels/reduce_ops.h"

namespace aikido::kernels {
namespace {

// Block of a partial result that passes through memory: it stays in the L1 cache.
constexpr size_t kBlockBytes = 4096;
// Most sources of one loop: that many pointers fit into the registers of x86.
constexpr size_t kMostSources = 8;
// From this many bytes on, of all sources of a call, the data is not in the L1 cache.
constexpr size_t kFarBytes = 64 << 10;
// Distance in bytes at which a loop prefetches, on a CPU that benefits from it
// (prefetch.h). The hardware prefetcher stops at each page. With two sources, on some
// CPUs, that costs a fifth of the speed from the L3 cache and 5 % of the speed from
// memory. To continue it, one line of each row is enough. Prefetching all lines would
// cost 4 % of the speed from the L2 cache with AVX. With more streams the prefetcher
// continues by itself.
constexpr size_t kAheadBytes = 1024;
constexpr size_t kMostPrefetched = 4;
// Limits for prefetching every line of many streams in memory. Many streams leave the
// CPU too few reads in progress, and the more so with narrower vectors. Prefetching
// every line gives eight streams a quarter more without AVX and 6 % more with AVX-512.
// It gives four streams 8 % more with AVX2 and 2 % with AVX-512, and two streams
// nothing. From kOutOfCacheBytes on, the data of a call is not in an L2 cache of 1 MiB.
constexpr size_t kLeastMany = 4;
constexpr size_t kOutOfCacheBytes = 1 << 20;
constexpr size_t kLineBytes = 64;
// Without AVX, an x86 CPU can add from memory only aligned data. Otherwise loads are
// separate instructions, which cost 3 % of the speed from the L1 cache.
#if defined(__SSE2__) && !defined(__AVX__)
constexpr bool kAlignedPays = true;
#else
constexpr bool kAlignedPays = false;
#endif
// Vectors of one source in a row. With half as many, eight sources lose an eighth of
// the speed from the L2 cache.
constexpr size_t kVecsInRow = 8;
// Row length for data in the L1 cache, where the instructions of a row itself count.
// Rows of all registers make sums of up to four sources 4 % faster without AVX and 2 %
// faster with AVX2. With AVX-512 short rows are 1 % faster, because there are fewer of
// them anyway.
template <size_t K>
constexpr size_t kVecsInNearRow = kVectorBytes == 64     ? kVecsInRow / 2
                                  : K <= kMostPrefetched ? kVecsInRow * 2
                                                         : kVecsInRow;
// Row length for up to kMostPrefetched sources with prefetching. Without AVX, half rows
// make four sources 8 % faster from the L2 cache, because each line is prefetched then.
// With AVX2, whole rows are 3 % faster.
constexpr size_t kVecsInFarRow = kVectorBytes == 32 ? kVecsInRow : kVecsInRow / 2;

// Vector size on a CPU that does not benefit from prefetching. Its 512-bit vectors get
// up to a tenth less from memory than 256-bit vectors, in rows of 256 or 512 bytes, and
// as much from the caches.
constexpr size_t kCalmVectorBytes = kVectorBytes == 64 ? 32 : kVectorBytes;

// Element types: how a value, or a vector of values, is read into an accumulator and
// written back.
template <class T>
struct Plain {
  using Acc = T;
  template <class V>
  static V load(const Byte* from) {
    return load_unaligned<V>(from);
  }
};

struct Truth {
  using Acc = uint8_t;
  template <class V>
  static V load(const Byte* from) {
    const V value = load_unaligned<V>(from);
    return value != 0 ? V{} + 1 : V{};
  }
};

template <class T, size_t bytes>
struct Vector {
  typedef T Type __attribute__((vector_size(bytes)));
};

// Folds `num_vecs` values of V, an element or a vector, at byte `at` of the first K
// sources. Reads one source at a time, so that each stream is read in longer pieces.
// Prefetches so many lines of each.
template <class E, class Op, bool Scaled, size_t K, size_t lines_ahead, bool IsAligned,
          class V, size_t num_vecs>
[[gnu::always_inline]] inline void fold_step(Byte* out, const Byte* const* from,
                                             size_t at, typename E::Acc scale) {
  V acc[num_vecs] = {};
  for (size_t k = 0; k < K; ++k) {
    for (size_t v = 0; v < num_vecs; ++v) {
      const void* lies = from[k] + at + v * sizeof(V);
      if constexpr (IsAligned) lies = __builtin_assume_aligned(lies, sizeof(V));
      const V value = E::template load<V>(static_cast<const Byte*>(lies));
      acc[v] = k == 0 ? value : Op::apply(acc[v], value);
    }
    for (size_t line = 0; line < lines_ahead; ++line)
      __builtin_prefetch(from[k] + at + kAheadBytes + line * kLineBytes);
  }
  for (size_t v = 0; v < num_vecs; ++v) {
    if constexpr (Scaled) acc[v] = acc[v] * scale;
    store_unaligned<V>(out + at + v * sizeof(V), acc[v]);
  }
}

// Returns the same pointer, but hides its origin from the compiler. Otherwise the
// compiler addresses many sources with one common index, and Intel CPUs then split each
// addition into two micro-operations. With AVX2 that costs eight sources a sixth of the
// speed from the L1 cache.
[[gnu::always_inline]] inline const Byte* opaque(const Byte* from) {
  asm("" : "+r"(from));
  return from;
}

// Folds the rest behind the whole rows, from byte `at` on. A separate function, so that
// a call without a rest needs no stack.
template <class E, class Op, bool Scaled, size_t K, class V>
[[gnu::noinline]] void fold_rest(Byte* out, const void* const* sources, size_t at,
                                 size_t bytes, typename E::Acc scale) {
  const Byte* from[K];
  for (size_t k = 0; k < K; ++k) from[k] = static_cast<const Byte*>(sources[k]);
  for (; at + sizeof(V) <= bytes; at += sizeof(V))
    fold_step<E, Op, Scaled, K, 0, false, V, 1>(out, from, at, scale);
  for (; at < bytes; at += sizeof(typename E::Acc))
    fold_step<E, Op, Scaled, K, 0, false, typename E::Acc, 1>(out, from, at, scale);
}

// IsAligned: the sources are aligned to a vector.
template <class E, class Op, bool Scaled, size_t K, size_t lines_ahead,
          bool IsAligned = false, size_t num_vecs = kVecsInRow,
          size_t vector_bytes = kVectorBytes>
void fold_loop(Byte* out, const void* const* sources, size_t bytes,
               typename E::Acc scale) {
  using V = typename Vector<typename E::Acc, vector_bytes>::Type;
  constexpr size_t kRowBytes = num_vecs * sizeof(V);
  const size_t in_rows = bytes / kRowBytes * kRowBytes;
  const Byte* from[K];
  for (size_t k = 0; k < K; ++k) from[k] = opaque(static_cast<const Byte*>(sources[k]));
  for (const Byte* const end = out + in_rows; out != end; out += kRowBytes) {
    fold_step<E, Op, Scaled, K, lines_ahead, IsAligned, V, num_vecs>(out, from, 0,
                                                                     scale);
    for (size_t k = 0; k < K; ++k) from[k] = opaque(from[k] + kRowBytes);
  }
  if (in_rows < bytes)
    fold_rest<E, Op, Scaled, K, V>(out - in_rows, sources, in_rows, bytes, scale);
}

template <size_t K>
bool are_aligned(const void* const* sources) {
  uintptr_t bits = 0;
  for (size_t k = 0; k < K; ++k) bits |= reinterpret_cast<uintptr_t>(sources[k]);
  return bits % kVectorBytes == 0;
}

// Without prefetching.
template <class E, class Op, bool Scaled, size_t K, size_t num_vecs>
void fold_plainly(Byte* out, const void* const* sources, size_t bytes,
                  typename E::Acc scale) {
  if (kAlignedPays && are_aligned<K>(sources))
    fold_loop<E, Op, Scaled, K, 0, kAlignedPays, num_vecs>(out, sources, bytes, scale);
  else
    fold_loop<E, Op, Scaled, K, 0, false, num_vecs>(out, sources, bytes, scale);
}

template <class E, class Op, bool Scaled, size_t K>
void fold_by_size(Byte* out, const void* const* sources, size_t bytes,
                  typename E::Acc scale) {
  if (bytes < kFarBytes / K)
    return fold_plainly<E, Op, Scaled, K, kVecsInNearRow<K>>(out, sources, bytes,
                                                             scale);
  constexpr size_t kVecs = K > kMostPrefetched ? kVecsInRow : kVecsInFarRow;
  constexpr size_t kLinesInRow = kVecs * kVectorBytes / kLineBytes;
  static_assert(kLinesInRow >= 1);
  if (prefetches && K >= kLeastMany && bytes >= kOutOfCacheBytes / K)
    fold_loop<E, Op, Scaled, K, kLinesInRow, false, kVecs>(out, sources, bytes, scale);
  else if (prefetches && K <= kMostPrefetched)
    fold_loop<E, Op, Scaled, K, 1, false, kVecs>(out, sources, bytes, scale);
  else if (kCalmVectorBytes != kVectorBytes && !prefetches)
    fold_loop<E, Op, Scaled, K, 0, false, kVecsInRow, kCalmVectorBytes>(out, sources,
                                                                        bytes, scale);
  else
    fold_plainly<E, Op, Scaled, K, kVecsInRow>(out, sources, bytes, scale);
}

// Only sums have a loop for each cache. Other operations are rare, and their loops
// would take half of the compile time of this file.
template <class E, class Op, bool Scaled, size_t K>
void fold_exactly(Byte* out, const void* const* sources, size_t bytes,
                  typename E::Acc scale) {
  if constexpr (std::is_same_v<Op, Sum>)
    fold_by_size<E, Op, Scaled, K>(out, sources, bytes, scale);
  else
    fold_loop<E, Op, Scaled, K, 0>(out, sources, bytes, scale);
}

template <class E, class Op, bool Scaled>
void fold_one(Byte* out, const void* const* sources, size_t bytes,
              typename E::Acc scale) {
  if constexpr (!Scaled && !std::is_same_v<E, Truth>)
    // Not through the accumulator, which would make a signalling NaN quiet.
    __builtin_memmove(out, sources[0], bytes);
  else
    fold_loop<E, Op, Scaled, 1, 0>(out, sources, bytes, scale);
}

// 1 to 4 sources.
template <class E, class Op, bool Scaled>
void fold_few(Byte* out, const void* const* sources, size_t num_sources, size_t bytes,
              typename E::Acc scale) {
  if (num_sources == 1)
    fold_one<E, Op, Scaled>(out, sources, bytes, scale);
  else if (num_sources == 2)
    fold_exactly<E, Op, Scaled, 2>(out, sources, bytes, scale);
  else if (num_sources == 3)
    fold_exactly<E, Op, Scaled, 3>(out, sources, bytes, scale);
  else
    fold_exactly<E, Op, Scaled, 4>(out, sources, bytes, scale);
}

// Other numbers of sources: some at a time, in blocks whose partial results stay in the
// L1 cache.
template <class E, class Op, bool Scaled>
void fold_many(Byte* out, const void* const* sources, size_t num_sources, size_t bytes,
               typename E::Acc scale) {
  alignas(64) Byte acc[kBlockBytes];
  const void* some[kMostSources];
  for (size_t first = 0; first < bytes; first += kBlockBytes) {
    const size_t n = bytes - first < kBlockBytes ? bytes - first : kBlockBytes;
    size_t done = 0;
    size_t num_some = 0;
    const auto fill = [&](size_t most) {
      while (num_some < most)
        some[num_some++] = static_cast<const Byte*>(sources[done++]) + first;
    };
    const auto left = [&] { return num_some + num_sources - done; };
    while (left() > 4) {
      if (left() > kMostSources) {
        fill(kMostSources);
        fold_loop<E, Op, false, kMostSources, 0>(acc, some, n, scale);
      } else {
        fill(4);
        fold_loop<E, Op, false, 4, 0>(acc, some, n, scale);
      }
      some[0] = acc;
      num_some = 1;
    }
    fill(left());
    fold_few<E, Op, Scaled>(out + first, some, num_some, n, scale);
  }
}

template <class E, class Op, bool Scaled>
void fold(void* out, const void* const* sources, size_t num_sources, size_t count,
          double scale) {
  const auto to = static_cast<Byte*>(out);
  const auto factor = static_cast<typename E::Acc>(scale);
  const size_t bytes = count * sizeof(typename E::Acc);
  if (num_sources <= 4)
    fold_few<E, Op, Scaled>(to, sources, num_sources, bytes, factor);
  else if (num_sources == kMostSources)
    fold_exactly<E, Op, Scaled, kMostSources>(to, sources, bytes, factor);
  else
    fold_many<E, Op, Scaled>(to, sources, num_sources, bytes, factor);
}

}  // namespace
}  // namespace aikido::kernels

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The loops of memory_loops.h, compiled once per instruction set like
// kernels/reduce_impl.h.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "memory_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace aikido::bench {
namespace {

#if defined(__AVX512F__)
constexpr size_t kWidth = 64;
#elif defined(__AVX2__)
constexpr size_t kWidth = 32;
#else
constexpr size_t kWidth = 16;
#endif
typedef float Vec __attribute__((vector_size(kWidth)));

// Forces the value to be computed, and does nothing with it.
inline void keep(Vec value) {
#if defined(__AVX512F__)
  asm volatile("" : : "v"(value));
#elif defined(__x86_64__)
  asm volatile("" : : "x"(value));
#else
  asm volatile("" : : "w"(value));
#endif
}

inline void load(const std::byte* from) {
  keep(*reinterpret_cast<const Vec*>(from));
}

// Hides a pointer from the compiler, so that the pointers do not share one index
// (kernels/reduce_fold.h).
[[gnu::always_inline]] inline std::byte* opaque(std::byte* from) {
  asm("" : "+r"(from));
  return from;
}

inline void store(std::byte* to) {
  *reinterpret_cast<Vec*>(to) = Vec{};
}

// Stores past the caches if the instruction set can.
inline void store_past(std::byte* to) {
#if defined(__AVX512F__)
  _mm512_stream_ps(reinterpret_cast<float*>(to), Vec{});
#elif defined(__AVX2__)
  _mm256_stream_ps(reinterpret_cast<float*>(to), Vec{});
#elif defined(__x86_64__)
  _mm_stream_ps(reinterpret_cast<float*>(to), Vec{});
#else
  store(to);
#endif
}

enum class Write { kNone, kPlain, kPast };

template <size_t Step>
inline void load_step(const std::byte* from, size_t ahead) {
#pragma GCC unroll 64
  for (size_t v = 0; v < Step; v += kWidth) load(from + v);
  if (ahead == 0) return;
#pragma GCC unroll 64
  for (size_t v = 0; v < Step; v += 64) __builtin_prefetch(from + ahead + v);
}

template <size_t Step, Write W>
inline void store_step(std::byte* to) {
#pragma GCC unroll 64
  for (size_t v = 0; v < Step; v += kWidth) {
    if constexpr (W == Write::kPlain) store(to + v);
    if constexpr (W == Write::kPast) store_past(to + v);
  }
}

// Loads one buffer after another, `Step` bytes at a time.
template <size_t Step, size_t Ahead>
void in_turn(std::byte* const* buffers, size_t num_sources, size_t bytes) {
  for (size_t k = 0; k < num_sources; ++k) {
    const std::byte* const from = buffers[k];
    for (size_t i = 0; i < bytes; i += Step) load_step<Step>(from + i, Ahead);
  }
}

// Goes through all buffers side by side, `Step` bytes of each at a time.
template <size_t K, size_t Step, size_t Ahead, Write W>
void side_by_side_of(std::byte* const* buffers, size_t bytes) {
  std::byte* from[K];
  for (size_t k = 0; k < K; ++k) from[k] = buffers[k];
  for (size_t i = 0; i < bytes; i += Step) {
#pragma GCC unroll 8
    for (size_t k = 0; k < K; ++k) load_step<Step>(from[k] + i, Ahead);
    store_step<Step, W>(from[0] + i);
  }
}

template <size_t Step, size_t Ahead, Write W>
void side_by_side(std::byte* const* buffers, size_t num_sources, size_t bytes) {
  if (num_sources == 2) return side_by_side_of<2, Step, Ahead, W>(buffers, bytes);
  if (num_sources == 4) return side_by_side_of<4, Step, Ahead, W>(buffers, bytes);
  side_by_side_of<8, Step, Ahead, W>(buffers, bytes);
}

// Does as many loads and additions as a sum of the buffers. With Writes it also does as
// many stores, of zeros, which wait for no sum. With IsNear it always uses the same 32
// KiB, so that only the L1 cache takes part. With Ahead it prefetches one line of each
// step, this number of bytes ahead.
template <size_t K, size_t NumSums, bool Writes, bool IsNear, size_t Ahead>
void add_of(std::byte* const* buffers, size_t bytes) {
  constexpr size_t kStep = NumSums * kWidth;
  const size_t near = IsNear ? std::min(bytes, (size_t{32} << 10) / K) : bytes;
  for (size_t left = bytes; left > 0; left -= std::min(left, near)) {
    std::byte* from[K];
    for (size_t k = 0; k < K; ++k) from[k] = buffers[k];
    for (const std::byte* const end = from[0] + std::min(left, near); from[0] != end;) {
      Vec sums[NumSums] = {};
      for (size_t k = 0; k < K; ++k) {
        for (size_t v = 0; v < NumSums; ++v) {
          const Vec value = *reinterpret_cast<const Vec*>(from[k] + v * kWidth);
          sums[v] = k == 0 ? value : sums[v] + value;
        }
        if constexpr (Ahead > 0) __builtin_prefetch(from[k] + Ahead);
      }
      for (size_t v = 0; v < NumSums; ++v) keep(sums[v]);
      if constexpr (Writes) store_step<kStep, Write::kPlain>(from[0]);
      for (size_t k = 0; k < K; ++k) from[k] = opaque(from[k] + kStep);
    }
  }
}

template <size_t NumSums, bool Writes, bool IsNear, size_t Ahead = 0>
void add(std::byte* const* buffers, size_t num_sources, size_t bytes) {
  if (num_sources == 2)
    return add_of<2, NumSums, Writes, IsNear, Ahead>(buffers, bytes);
  if (num_sources == 4)
    return add_of<4, NumSums, Writes, IsNear, Ahead>(buffers, bytes);
  add_of<8, NumSums, Writes, IsNear, Ahead>(buffers, bytes);
}

// Goes through blocks of 4 KiB: all loads of a block, and then all its stores.
template <Write W>
void in_blocks(std::byte* const* buffers, size_t num_sources, size_t bytes) {
  constexpr size_t kBlock = 4096;
  for (size_t first = 0; first < bytes; first += kBlock) {
    for (size_t k = 0; k < num_sources; ++k)
      for (size_t i = first; i < first + kBlock; i += 512)
        load_step<512>(buffers[k] + i, 0);
    for (size_t i = first; i < first + kBlock; i += 512)
      store_step<512, W>(buffers[0] + i);
  }
}

std::vector<MemoryLoop> loops_here() {
  using enum Write;
  return {
      {"read", "in turn, 512 B", in_turn<512, 0>},
      {"read", "in turn, 1 KiB", in_turn<1024, 0>},
      {"read", "in turn, prefetched", in_turn<512, 2048>},
      {"read", "side by side, 64 B", side_by_side<64, 0, kNone>},
      {"read", "side by side, 256 B", side_by_side<256, 0, kNone>},
      {"read", "side by side, 512 B", side_by_side<512, 0, kNone>},
      {"read", "side by side, prefetched", side_by_side<256, 1024, kNone>},
      {"add", "near, 4 vectors", add<4, false, true>},
      {"add", "near, 8 vectors", add<8, false, true>},
      {"add and write", "near, 4 vectors", add<4, true, true>},
      {"add and write", "near, 8 vectors", add<8, true, true>},
      {"add there", "4 vectors", add<4, true, false>},
      {"add there", "8 vectors", add<8, true, false>},
      {"add there", "4 vectors, prefetched", add<4, true, false, 1024>},
      {"add there", "8 vectors, prefetched", add<8, true, false, 1024>},
      {"write", "side by side, 64 B", side_by_side<64, 0, kPlain>},
      {"write", "side by side, 256 B", side_by_side<256, 0, kPlain>},
      {"write", "side by side, 512 B", side_by_side<512, 0, kPlain>},
      {"write", "side by side, prefetched", side_by_side<256, 1024, kPlain>},
      {"write", "side by side, past the caches", side_by_side<256, 0, kPast>},
      {"write", "in blocks", in_blocks<kPlain>},
      {"write", "in blocks, past the caches", in_blocks<kPast>},
  };
}

}  // namespace
}  // namespace aikido::bench

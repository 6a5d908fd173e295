// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The loops of memory_loops.h, compiled once per instruction set like
// kernels/reduce_impl.h.

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

// The load must happen; nothing is done with the value.
inline void load(const std::byte* from) {
  const Vec value = *reinterpret_cast<const Vec*>(from);
#if defined(__AVX512F__)
  asm volatile("" : : "v"(value));
#elif defined(__x86_64__)
  asm volatile("" : : "x"(value));
#else
  asm volatile("" : : "w"(value));
#endif
}

inline void store(std::byte* to) {
  *reinterpret_cast<Vec*>(to) = Vec{};
}

// Past the caches, where the instruction set can.
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

// One buffer after another, `Step` bytes at a time.
template <size_t Step, size_t Ahead>
void in_turn(std::byte* const* buffers, size_t num_sources, size_t bytes) {
  for (size_t k = 0; k < num_sources; ++k) {
    const std::byte* const from = buffers[k];
    for (size_t i = 0; i < bytes; i += Step) load_step<Step>(from + i, Ahead);
  }
}

// All buffers side by side, `Step` bytes of each at a time.
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

// Blocks of 4 KiB: all loads of one, then all its stores.
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
      {"in turn, 512 B", false, in_turn<512, 0>},
      {"in turn, 1 KiB", false, in_turn<1024, 0>},
      {"in turn, prefetched", false, in_turn<512, 2048>},
      {"side by side, 64 B", false, side_by_side<64, 0, kNone>},
      {"side by side, 256 B", false, side_by_side<256, 0, kNone>},
      {"side by side, 512 B", false, side_by_side<512, 0, kNone>},
      {"side by side, prefetched", false, side_by_side<256, 1024, kNone>},
      {"side by side, 64 B", true, side_by_side<64, 0, kPlain>},
      {"side by side, 256 B", true, side_by_side<256, 0, kPlain>},
      {"side by side, 512 B", true, side_by_side<512, 0, kPlain>},
      {"side by side, prefetched", true, side_by_side<256, 1024, kPlain>},
      {"side by side, past the caches", true, side_by_side<256, 0, kPast>},
      {"in blocks", true, in_blocks<kPlain>},
      {"in blocks, past the caches", true, in_blocks<kPast>},
  };
}

}  // namespace
}  // namespace aikido::bench

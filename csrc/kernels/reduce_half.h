// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Reduction of fp16 and bf16: vectors of fp32 accumulate in registers over all sources
// and are narrowed once. Written with the vector types of gcc and clang, because their
// automatic vectorisers leave these conversions scalar. Part of reduce_impl.h: in an
// unnamed namespace, compiled once per instruction set.

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/half.h"
#include "kernels/reduce_ops.h"

namespace aikido::kernels {
namespace {

constexpr size_t kLanes = kVectorBytes / sizeof(float);
typedef float FloatVec __attribute__((vector_size(4 * kLanes)));
typedef uint32_t WordVec __attribute__((vector_size(4 * kLanes)));
typedef uint16_t HalfVec __attribute__((vector_size(2 * kLanes)));

// Zero-extends. The compilers' own conversion takes five instructions instead of one.
inline WordVec to_words(HalfVec h) {
#if defined(__AVX512F__)
  return __builtin_bit_cast(
      WordVec, _mm512_maskz_cvtepu16_epi32(0xffff, __builtin_bit_cast(__m256i, h)));
#elif defined(__AVX2__)
  return __builtin_bit_cast(WordVec,
                            _mm256_cvtepu16_epi32(__builtin_bit_cast(__m128i, h)));
#else
  return __builtin_convertvector(h, WordVec);
#endif
}

struct Fp16 {
  static float widen(uint16_t h) { return fp16_to_float(h); }
  static uint16_t narrow(float f) { return float_to_fp16(f); }
#if defined(__AVX512F__)
  // The forms without a mask cause a false "uninitialised" warning of gcc 12.
  static constexpr __mmask16 kAll = 0xffff;
  static FloatVec widen(HalfVec h) {
    return _mm512_maskz_cvtph_ps(kAll, __builtin_bit_cast(__m256i, h));
  }
  static HalfVec narrow(FloatVec f) {
    return __builtin_bit_cast(
        HalfVec, _mm512_maskz_cvtps_ph(kAll, f, _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  static FloatVec widen(HalfVec h) {
    return _mm256_cvtph_ps(__builtin_bit_cast(__m128i, h));
  }
  static HalfVec narrow(FloatVec f) {
    return __builtin_bit_cast(HalfVec, _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__aarch64__)
  static FloatVec widen(HalfVec h) {
    return __builtin_bit_cast(FloatVec,
                              vcvt_f32_f16(__builtin_bit_cast(float16x4_t, h)));
  }
  static HalfVec narrow(FloatVec f) {
    return __builtin_bit_cast(HalfVec,
                              vcvt_f16_f32(__builtin_bit_cast(float32x4_t, f)));
  }
#else
  static FloatVec widen(HalfVec h) {
    return widen_fp16<FloatVec>(to_words(h));
  }
  static HalfVec narrow(FloatVec f) {
    return __builtin_convertvector(narrow_fp16<WordVec>(f), HalfVec);
  }
#endif
};

struct Bf16 {
  static float widen(uint16_t h) { return bf16_to_float(h); }
  static uint16_t narrow(float f) { return float_to_bf16(f); }
  static FloatVec widen(HalfVec h) { return widen_bf16<FloatVec>(to_words(h)); }
  static HalfVec narrow(FloatVec f) {
    return __builtin_convertvector(narrow_bf16<WordVec>(f), HalfVec);
  }
};

// One step for `num_vecs` values of V (uint16_t or HalfVec) at byte `at` of each
// buffer. A is the matching accumulator.
template <class H, class Op, class V, class A, size_t num_vecs>
void half_step(Byte* out, const void* const* sources, size_t num_sources, size_t at,
               float scale, bool is_scaled) {
  A acc[num_vecs];
  const Byte* from = static_cast<const Byte*>(sources[0]) + at;
  for (size_t v = 0; v < num_vecs; ++v)
    acc[v] = H::widen(load_unaligned<V>(from + v * sizeof(V)));
  for (size_t k = 1; k < num_sources; ++k) {
    from = static_cast<const Byte*>(sources[k]) + at;
    for (size_t v = 0; v < num_vecs; ++v)
      acc[v] = Op::apply(acc[v], H::widen(load_unaligned<V>(from + v * sizeof(V))));
  }
  if (is_scaled)
    for (size_t v = 0; v < num_vecs; ++v) acc[v] = acc[v] * scale;
  for (size_t v = 0; v < num_vecs; ++v)
    store_unaligned<V>(out + at + v * sizeof(V), H::narrow(acc[v]));
}

template <class H, class Op>
void reduce_half(void* out, const void* const* sources, size_t num_sources,
                 size_t count, double scale) {
  if (count == 0) return;
  const auto to = static_cast<Byte*>(out);
  const bool is_scaled = scale != 1.0;
  const auto factor = static_cast<float>(scale);
  if (num_sources == 1 && !is_scaled) {
    // Not through the accumulator, which would make a signalling NaN quiet.
    __builtin_memmove(out, sources[0], count * 2);
    return;
  }
  constexpr size_t kVecs = 4;
  constexpr size_t kStep = kVecs * kLanes;
  size_t i = 0;
  for (; i + kStep <= count; i += kStep)
    half_step<H, Op, HalfVec, FloatVec, kVecs>(to, sources, num_sources, 2 * i, factor,
                                               is_scaled);
  for (; i + kLanes <= count; i += kLanes)
    half_step<H, Op, HalfVec, FloatVec, 1>(to, sources, num_sources, 2 * i, factor,
                                           is_scaled);
  for (; i < count; ++i)
    half_step<H, Op, uint16_t, float, 1>(to, sources, num_sources, 2 * i, factor,
                                         is_scaled);
}

}  // namespace
}  // namespace aikido::kernels

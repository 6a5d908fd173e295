// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// IEEE 754 binary16 ("fp16") and bfloat16 as bit patterns, to fp32 and back. Narrowing
// rounds to nearest, ties to even, once; overflow gives infinity, subnormals are exact.
// A NaN stays a NaN, keeps its sign and the payload bits that fit, and becomes quiet,
// as the conversion instructions of x86 do. No step meets an fp32 subnormal that
// matters, so threads that flush subnormals get the same bits. Any thread.
//
// Everything has internal linkage on purpose: the files of one instruction set each
// (reduce_impl.h) include this, and the linker must never pick, for a plain CPU, a
// copy that was compiled with AVX-512.

#include <cstdint>

namespace aikido::kernels {

static inline float fp16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  const uint32_t shifted = magnitude << 13;
  // Subnormal: put the fraction behind the exponent of 2^-14, then take 2^-14 off
  // again.
  const float tiny = __builtin_bit_cast(float, shifted + (113u << 23)) -
                     __builtin_bit_cast(float, 113u << 23);
  const uint32_t special =
      shifted | 0x7f800000u | (magnitude > 0x7c00u ? 1u << 22 : 0u);
  uint32_t bits = shifted + (112u << 23);
  bits = magnitude >= 0x7c00u ? special : bits;
  bits = magnitude < 0x0400u ? __builtin_bit_cast(uint32_t, tiny) : bits;
  return __builtin_bit_cast(float, bits | sign);
}

static inline uint16_t float_to_fp16(float f) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, f);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Rebias the exponent by -112 and add just under half a unit, one more when odd.
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t normal = (magnitude - (112u << 23) + 0x0fffu + odd) >> 13;
  // The last place of numbers near 0.5 is 2^-24, the fp16 subnormal unit: adding 0.5
  // lets the adder round.
  const float sum = __builtin_bit_cast(float, magnitude) + 0.5f;
  const uint32_t tiny = __builtin_bit_cast(uint32_t, sum) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
  uint32_t half = normal;
  half = magnitude < 0x38800000u ? tiny : half;      // below 2^-14
  half = magnitude >= 0x47800000u ? 0x7c00u : half;  // 65536 and up
  half = magnitude > 0x7f800000u ? nan : half;
  return static_cast<uint16_t>(half | sign);
}

static inline float bf16_to_float(uint16_t h) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(h) << 16);
}

static inline uint16_t float_to_bf16(float f) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, f);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x0040u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? nan : rounded);
}

}  // namespace aikido::kernels

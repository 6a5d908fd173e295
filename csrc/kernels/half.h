// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Conversion of IEEE 754 binary16 ("fp16") and bfloat16, as bit patterns, to fp32 and
// back. Narrowing rounds once, to nearest, ties to even. Overflow gives infinity, and
// subnormals are exact. A NaN stays a NaN and keeps its sign and the payload bits that
// fit. Conversions of fp16, and narrowing, make it quiet, as the instructions of x86
// and Arm do. No step depends on fp32 subnormals, so threads that flush subnormals to
// zero get the same bits. Any thread.
//
// The formulas are written once, for one number or for a vector. F is float or a vector
// of floats. U is uint32_t or a vector of it, with the 16 bits in the low half.
//
// Everything has internal linkage on purpose. Several files include this, each compiled
// for one instruction set (reduce_impl.h). With external linkage the linker could pick
// a copy that was compiled with AVX-512, for a CPU without it.

#include <cstdint>

namespace aikido::kernels {

template <class F, class U>
static inline F widen_fp16(U h) {
  const U sign = (h & 0x8000u) << 16;
  const U magnitude = h & 0x7fffu;
  const U shifted = magnitude << 13;
  // Subnormal: put the fraction behind the exponent of 2^-14, then subtract 2^-14
  // again.
  const U base = U{} + (113u << 23);
  const F tiny = __builtin_bit_cast(F, shifted + base) - __builtin_bit_cast(F, base);
  const U quiet = magnitude > 0x7c00u ? U{} + (1u << 22) : U{};
  U bits = shifted + (112u << 23);
  bits = magnitude >= 0x7c00u ? (shifted | 0x7f800000u | quiet) : bits;
  bits = magnitude < 0x0400u ? __builtin_bit_cast(U, tiny) : bits;
  return __builtin_bit_cast(F, bits | sign);
}

template <class U, class F>
static inline U narrow_fp16(F f) {
  const U bits = __builtin_bit_cast(U, f);
  const U sign = (bits >> 16) & 0x8000u;
  const U magnitude = bits & 0x7fffffffu;
  // Rebias the exponent by -112. Add just under half a unit, or half a unit if the last
  // kept bit is odd.
  const U odd = (magnitude >> 13) & 1u;
  const U normal = (magnitude - (112u << 23) + 0x0fffu + odd) >> 13;
  // The last place of numbers near 0.5 is 2^-24, which is the unit of fp16 subnormals.
  // So adding 0.5 makes the adder round.
  const F sum = __builtin_bit_cast(F, magnitude) + 0.5f;
  const U tiny = __builtin_bit_cast(U, sum) - 0x3f000000u;
  const U nan = ((magnitude >> 13) & 0x03ffu) | 0x7e00u;
  U half = magnitude < 0x38800000u ? tiny : normal;        // for magnitudes below 2^-14
  half = magnitude >= 0x47800000u ? U{} + 0x7c00u : half;  // overflow: from 65536 on
  half = magnitude > 0x7f800000u ? nan : half;
  return half | sign;
}

template <class F, class U>
static inline F widen_bf16(U h) {
  return __builtin_bit_cast(F, h << 16);
}

template <class U, class F>
static inline U narrow_bf16(F f) {
  const U bits = __builtin_bit_cast(U, f);
  const U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const U nan = (bits >> 16) | 0x0040u;
  return f != f ? nan : rounded;
}

static inline float fp16_to_float(uint16_t h) {
  return widen_fp16<float>(uint32_t{h});
}
static inline uint16_t float_to_fp16(float f) {
  return static_cast<uint16_t>(narrow_fp16<uint32_t>(f));
}
static inline float bf16_to_float(uint16_t h) {
  return widen_bf16<float>(uint32_t{h});
}
static inline uint16_t float_to_bf16(float f) {
  return static_cast<uint16_t>(narrow_bf16<uint32_t>(f));
}

}  // namespace aikido::kernels

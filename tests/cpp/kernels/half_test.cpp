// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "kernels/half.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "harness/catch.h"

namespace aikido::kernels {
namespace {

uint32_t bits_of(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}
float float_of(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

// What the 16 bits mean by the definition of the format: `exponent_bits` of 5 is fp16,
// of 8 is bfloat16.
double value_by_definition(uint16_t h, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (h >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = h & ((1 << fraction_bits) - 1);
  const double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::nan("")
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign *
         std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

// Fp32 values where rounding decides: every 16-bit neighbour, the middle between them,
// and one bit beside the middle.
template <class Widen>
std::vector<float> values_near_ties(Widen widen, uint16_t infinity) {
  std::vector<float> values;
  for (uint32_t h = 0; h < infinity; ++h) {
    const uint32_t low = bits_of(widen(static_cast<uint16_t>(h)));
    const uint32_t high = bits_of(widen(static_cast<uint16_t>(h + 1)));
    const uint32_t middle = low + (high - low) / 2;
    for (const uint32_t bits : {low, low + 1, middle - 1, middle, middle + 1, high - 1})
      values.push_back(float_of(bits));
  }
  return values;
}

// The nearest of the 16-bit values, the one with an even last bit when two are equally
// near, found by distance alone. Magnitudes only; finite and below infinity.
template <class Widen>
uint16_t nearest_even(float f, uint16_t guess, Widen widen) {
  uint16_t best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  const int first = guess >= 2 ? guess - 2 : 0;
  for (int h = first; h <= guess + 2; ++h) {
    const double value = static_cast<double>(widen(static_cast<uint16_t>(h)));
    if (!std::isfinite(value)) break;
    const double distance = std::fabs(value - static_cast<double>(f));
    if (distance < best_distance || (distance == best_distance && h % 2 == 0)) {
      best = static_cast<uint16_t>(h);
      best_distance = distance;
    }
  }
  return best;
}

TEST_CASE("every fp16 pattern has its defined value and comes back unchanged") {
  int wrong = 0;
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const double expected = value_by_definition(h, 5);
    const float f = fp16_to_float(h);
    if (std::isnan(expected)) {
      // A signalling NaN becomes quiet, all else of it stays.
      wrong += !std::isnan(f) || float_to_fp16(f) != (h | 0x0200);
    } else {
      wrong += static_cast<double>(f) != expected || std::signbit(f) != (h >= 0x8000) ||
               float_to_fp16(f) != h;
    }
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("every bf16 pattern has its defined value and comes back unchanged") {
  int wrong = 0;
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const double expected = value_by_definition(h, 8);
    const float f = bf16_to_float(h);
    if (std::isnan(expected)) {
      wrong += !std::isnan(f) || float_to_bf16(f) != (h | 0x0040);
    } else {
      wrong += static_cast<double>(f) != expected || std::signbit(f) != (h >= 0x8000) ||
               float_to_bf16(f) != h;
    }
  }
  REQUIRE(wrong == 0);
}

TEST_CASE(
    "narrowing to fp16 takes the nearest value, and the even one if two are nearest") {
  int wrong = 0;
  for (const float f : values_near_ties(fp16_to_float, 0x7bff)) {
    const uint16_t h = float_to_fp16(f);
    wrong += h != nearest_even(f, h, fp16_to_float);
    wrong += float_to_fp16(-f) != (h | 0x8000);
  }
  REQUIRE(wrong == 0);
}

TEST_CASE(
    "narrowing to bf16 takes the nearest value, and the even one if two are nearest") {
  int wrong = 0;
  for (const float f : values_near_ties(bf16_to_float, 0x7f7f)) {
    const uint16_t h = float_to_bf16(f);
    wrong += h != nearest_even(f, h, bf16_to_float);
    wrong += float_to_bf16(-f) != (h | 0x8000);
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("narrowing to fp16 follows the standard at the largest and smallest values") {
  REQUIRE(float_to_fp16(65504.0f) == 0x7bff);    // the largest
  REQUIRE(float_to_fp16(65519.996f) == 0x7bff);  // still rounds down
  REQUIRE(float_to_fp16(65520.0f) == 0x7c00);    // the tie goes to infinity
  REQUIRE(float_to_fp16(3.4e38f) == 0x7c00);
  REQUIRE(float_to_fp16(-1e30f) == 0xfc00);
  REQUIRE(float_to_fp16(std::ldexp(1.0f, -24)) == 0x0001);  // the smallest
  REQUIRE(float_to_fp16(std::ldexp(1.0f, -25)) == 0x0000);  // a tie, zero is even
  REQUIRE(float_to_fp16(std::ldexp(1.0f, -25) * 1.0001f) == 0x0001);
  REQUIRE(float_to_fp16(std::ldexp(3.0f, -25)) == 0x0002);  // a tie, two is even
  REQUIRE(float_to_fp16(1e-40f) == 0x0000);                 // an fp32 subnormal
  REQUIRE(float_to_fp16(-0.0f) == 0x8000);
  REQUIRE(float_to_fp16(std::numeric_limits<float>::infinity()) == 0x7c00);
  REQUIRE(float_to_fp16(float_of(0x7f800001u)) == 0x7e00);  // a NaN with low bits only
}

TEST_CASE("narrowing to bf16 rounds correctly at the largest and smallest values") {
  REQUIRE(float_to_bf16(float_of(0x7f7f7fffu)) == 0x7f7f);
  REQUIRE(float_to_bf16(float_of(0x7f7f8000u)) == 0x7f80);  // the tie goes to infinity
  REQUIRE(float_to_bf16(float_of(0x00008000u)) == 0x0000);  // subnormal ties to even
  REQUIRE(float_to_bf16(float_of(0x00018000u)) == 0x0002);
  REQUIRE(float_to_bf16(float_of(0x7f800001u)) == 0x7fc0);
  REQUIRE(float_to_bf16(float_of(0xffffffffu)) == 0xffff);  // no wrap into +0
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) float widen_by_cpu(uint16_t h) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
__attribute__((target("f16c"))) uint16_t narrow_by_cpu(float f) {
  const __m128i h = _mm_cvtps_ph(_mm_set_ss(f), _MM_FROUND_TO_NEAREST_INT);
  return static_cast<uint16_t>(_mm_cvtsi128_si32(h) & 0xffff);
}
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

TEST_CASE("fp16 agrees with the conversion instructions of the CPU in every bit") {
  if (!has_f16c()) {
    WARN("skipped: this CPU has no F16C");
    return;
  }
  int wrong = 0;
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto h = static_cast<uint16_t>(i);
    wrong += bits_of(fp16_to_float(h)) != bits_of(widen_by_cpu(h));
  }
  for (const float f : values_near_ties(fp16_to_float, 0x7c00))
    wrong += float_to_fp16(f) != narrow_by_cpu(f);
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float f = float_of(static_cast<uint32_t>(random()));
    wrong += float_to_fp16(f) != narrow_by_cpu(f);
  }
  REQUIRE(wrong == 0);
}
#endif

}  // namespace
}  // namespace aikido::kernels

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "kernels/weighted_sum.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/half.h"

namespace aikido::kernels {
namespace {

// Elements whose accumulators stay in the L1 cache over all sources.
constexpr size_t kBlock = 1024;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Elements: stored type, accumulator, and conversions between them.
template <class T>
struct Real {
  using Stored = T;
  using Acc = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};
struct Fp16 {
  using Stored = uint16_t;
  using Acc = float;
  static float widen(uint16_t value) { return fp16_to_float(value); }
  static uint16_t narrow(float value) { return float_to_fp16(value); }
};
struct Bf16 {
  using Stored = uint16_t;
  using Acc = float;
  static float widen(uint16_t value) { return bf16_to_float(value); }
  static uint16_t narrow(float value) { return float_to_bf16(value); }
};

// `Lanes` elements of E make one element of the dtype.
template <class E, size_t Lanes = 1>
void weighted_sum(void* out, const void* const* sources, const double* factors,
                  size_t num_sources, size_t count) {
  using Stored = typename E::Stored;
  using Acc = typename E::Acc;
  std::array<Acc, kBlock> acc{};
  const size_t num_values = count * Lanes;
  for (size_t first = 0; first < num_values; first += kBlock) {
    const size_t n = std::min(kBlock, num_values - first);
    for (size_t k = 0; k < num_sources; ++k) {
      const auto* from =
          static_cast<const std::byte*>(sources[k]) + first * sizeof(Stored);
      const auto factor = static_cast<Acc>(factors[k]);
      for (size_t i = 0; i < n; ++i) {
        const Acc term = factor * E::widen(load<Stored>(from + i * sizeof(Stored)));
        acc[i] = k == 0 ? term : acc[i] + term;
      }
    }
    auto* to = static_cast<std::byte*>(out) + first * sizeof(Stored);
    for (size_t i = 0; i < n; ++i) {
      const Stored value = E::narrow(acc[i]);
      std::memcpy(to + i * sizeof(Stored), &value, sizeof value);
    }
  }
}

}  // namespace

WeightedSumFn find_weighted_sum(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return weighted_sum<Fp16>;
    case DType::kBFloat16:
      return weighted_sum<Bf16>;
    case DType::kFloat32:
      return weighted_sum<Real<float>>;
    case DType::kFloat64:
      return weighted_sum<Real<double>>;
    case DType::kComplex64:
      return weighted_sum<Real<float>, 2>;
    case DType::kComplex128:
      return weighted_sum<Real<double>, 2>;
    default:
      return nullptr;
  }
}

}  // namespace aikido::kernels

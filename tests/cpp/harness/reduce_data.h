// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Buffers for tests of reductions on host and device: random elements of any dtype by
// seed, the table of supported pairs, and a comparison in which any NaN equals any
// other. One thread.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/types.h"
#include "kernels/half.h"

namespace aikido::testing {

using Bytes = std::vector<unsigned char>;

inline std::vector<DType> all_dtypes() {
  std::vector<DType> all;
  for (int i = 0; i < kNumDTypes; ++i) all.push_back(static_cast<DType>(i));
  return all;
}
inline std::vector<ReduceOp> all_ops() {
  std::vector<ReduceOp> all;
  for (int i = 0; i < kNumReduceOps; ++i) all.push_back(static_cast<ReduceOp>(i));
  return all;
}

// Copy of the table of kernels/reduce.h.
inline bool is_pair_defined(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct:
      return true;
    case ReduceOp::kAvg:
      return dtype != DType::kBool;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return !is_complex(dtype);
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      return !is_floating(dtype);
  }
  return false;
}

template <class T>
T element(const unsigned char* data, size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void set_element(unsigned char* data, size_t i, T value) {
  std::memcpy(data + i * sizeof(T), &value, sizeof(T));
}

// `count` elements. Integers and bool: any pattern. Floating dtypes: signed values
// whose sizes differ so much that a sum shows its order, with some zeros of both signs.
// A product of ten neither overflows nor becomes NaN.
inline Bytes random_elements(DType dtype, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes data(count * size_of(dtype));
  if (!is_floating(dtype)) {
    for (size_t i = 0; i < data.size(); i += 8) {
      uint64_t word = random();
      if (dtype == DType::kBool)
        word &= 0x00ff00ff00ff00ffu;  // half of the elements are false
      std::memcpy(&data[i], &word, std::min<size_t>(8, data.size() - i));
    }
    return data;
  }
  const size_t num_lanes = is_complex(dtype) ? 2 * count : count;
  for (size_t i = 0; i < num_lanes; ++i) {
    const uint64_t r = random();
    const double fraction = 0.5 + static_cast<double>(r >> 12) * std::ldexp(0.5, -52);
    const int exponent = static_cast<int>(r % 11) - 5;
    double value = std::ldexp((r & 2048) != 0 ? -fraction : fraction, exponent);
    if ((r >> 20) % 64 == 0) value = (r & 2048) != 0 ? -0.0 : 0.0;
    const auto narrow = static_cast<float>(value);
    if (dtype == DType::kFloat16)
      set_element(data.data(), i, kernels::float_to_fp16(narrow));
    else if (dtype == DType::kBFloat16)
      set_element(data.data(), i, kernels::float_to_bf16(narrow));
    else if (dtype == DType::kFloat32 || dtype == DType::kComplex64)
      set_element(data.data(), i, narrow);
    else
      set_element(data.data(), i, value);
  }
  return data;
}

// Lane `i` of floating data. A real element has one lane, a complex element two.
inline double lane(DType dtype, const unsigned char* data, size_t i) {
  if (dtype == DType::kFloat16)
    return static_cast<double>(kernels::fp16_to_float(element<uint16_t>(data, i)));
  if (dtype == DType::kBFloat16)
    return static_cast<double>(kernels::bf16_to_float(element<uint16_t>(data, i)));
  if (dtype == DType::kFloat32 || dtype == DType::kComplex64)
    return static_cast<double>(element<float>(data, i));
  return element<double>(data, i);
}

// Index of the first lane (integers: byte) that differs; -1 if all bits are equal.
// The bits of two NaN do not matter.
inline ptrdiff_t first_difference(DType dtype, const unsigned char* a,
                                  const unsigned char* b, size_t count) {
  const size_t bytes = count * size_of(dtype);
  if (bytes == 0 || std::memcmp(a, b, bytes) == 0) return -1;
  if (!is_floating(dtype)) {
    for (size_t i = 0; i < bytes; ++i)
      if (a[i] != b[i]) return static_cast<ptrdiff_t>(i);
    return -1;
  }
  const size_t lane_bytes = is_complex(dtype) ? size_of(dtype) / 2 : size_of(dtype);
  for (size_t i = 0; i < bytes / lane_bytes; ++i) {
    if (std::memcmp(a + i * lane_bytes, b + i * lane_bytes, lane_bytes) == 0) continue;
    if (std::isnan(lane(dtype, a, i)) && std::isnan(lane(dtype, b, i))) continue;
    return static_cast<ptrdiff_t>(i);
  }
  return -1;
}

}  // namespace aikido::testing

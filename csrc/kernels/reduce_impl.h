// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The reduction loops, written once and compiled once per instruction set: each
// reduce_<set>.cpp includes this file and exports its find_in_<set>. All is in an
// unnamed namespace and calls nothing of the standard library, so that the linker
// cannot mix the copies.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/types.h"
#include "kernels/reduce.h"
#include "kernels/reduce_fold.h"
#include "kernels/reduce_half.h"
#include "kernels/reduce_ops.h"

namespace aikido::kernels {

namespace {

// Function of the exported type. `Lanes` elements of E make one element of the dtype: a
// sum of complex numbers is a sum of twice as many real numbers, and a wide integer
// consists of several narrower parts.
template <class E, class Op, size_t Lanes = 1>
void reduce(void* out, const void* const* sources, size_t num_sources, size_t count,
            double scale) {
  if (count == 0) return;
  if constexpr (std::is_floating_point_v<typename E::Acc>) {
    if (scale != 1.0)
      return fold<E, Op, true>(out, sources, num_sources, count * Lanes, scale);
  }
  // The factor has no effect: integers ignore it, and 1.0 changes nothing.
  fold<E, Op, false>(out, sources, num_sources, count * Lanes, 1.0);
}

// Multiplies in blocks, with real and imaginary parts apart, so that vectors are full.
template <class T>
void complex_product(void* out, const void* const* sources, size_t num_sources,
                     size_t count, double scale) {
  constexpr size_t kBlock = kBlockBytes / (2 * sizeof(T));
  T re[kBlock];
  T im[kBlock];
  const T factor = static_cast<T>(scale);
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t n = count - first < kBlock ? count - first : kBlock;
    const Byte* a = static_cast<const Byte*>(sources[0]) + first * 2 * sizeof(T);
    for (size_t i = 0; i < n; ++i) {
      re[i] = load_unaligned<T>(a + (2 * i) * sizeof(T));
      im[i] = load_unaligned<T>(a + (2 * i + 1) * sizeof(T));
    }
    for (size_t k = 1; k < num_sources; ++k) {
      const Byte* b = static_cast<const Byte*>(sources[k]) + first * 2 * sizeof(T);
      for (size_t i = 0; i < n; ++i) {
        const T c = load_unaligned<T>(b + (2 * i) * sizeof(T));
        const T d = load_unaligned<T>(b + (2 * i + 1) * sizeof(T));
        const T real = re[i] * c - im[i] * d;
        im[i] = re[i] * d + im[i] * c;
        re[i] = real;
      }
    }
    if (scale != 1.0) {
      for (size_t i = 0; i < n; ++i) {
        re[i] *= factor;
        im[i] *= factor;
      }
    }
    Byte* to = static_cast<Byte*>(out) + first * 2 * sizeof(T);
    for (size_t i = 0; i < n; ++i) {
      store_unaligned(to + (2 * i) * sizeof(T), re[i]);
      store_unaligned(to + (2 * i + 1) * sizeof(T), im[i]);
    }
  }
}

// The divisor may need more bits than T: a group can have 1,000 members with int8.
template <class T>
void integer_mean(void* out, const void* const* sources, size_t num_sources,
                  size_t count, double scale) {
  reduce<Plain<std::make_unsigned_t<T>>, Sum>(out, sources, num_sources, count, 1.0);
  if (scale <= 0.0 || scale >= 1.0) return;
  const auto divisor = static_cast<int64_t>(1.0 / scale + 0.5);
  Byte* to = static_cast<Byte*>(out);
  for (size_t i = 0; i < count; ++i, to += sizeof(T))
    store_unaligned(to, static_cast<T>(load_unaligned<T>(to) / divisor));
}

template <class T>
ReduceFn find_integer(ReduceOp op) {
  using U = Plain<std::make_unsigned_t<T>>;
  switch (op) {
    case ReduceOp::kSum:
      return reduce<U, Sum>;
    case ReduceOp::kProduct:
      return reduce<U, Product>;
    case ReduceOp::kMin:
      return reduce<Plain<T>, Min>;
    case ReduceOp::kMax:
      return reduce<Plain<T>, Max>;
    // Bit operations do not depend on the width of the number.
    case ReduceOp::kBand:
      return reduce<Plain<uint8_t>, Band, sizeof(T)>;
    case ReduceOp::kBor:
      return reduce<Plain<uint8_t>, Bor, sizeof(T)>;
    case ReduceOp::kBxor:
      return reduce<Plain<uint8_t>, Bxor, sizeof(T)>;
    case ReduceOp::kAvg:
      return integer_mean<T>;
  }
  return nullptr;
}

ReduceFn find_bool(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return reduce<Truth, Bor>;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return reduce<Truth, Band>;
    case ReduceOp::kBxor:
      return reduce<Truth, Bxor>;
    case ReduceOp::kAvg:
      break;
  }
  return nullptr;
}

// Table for real numbers: `get` returns the function for an operation.
template <class Get>
ReduceFn find_real(ReduceOp op, Get get) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return get(Sum{});
    case ReduceOp::kProduct:
      return get(Product{});
    case ReduceOp::kMin:
      return get(Min{});
    case ReduceOp::kMax:
      return get(Max{});
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      break;
  }
  return nullptr;
}

template <class T>
ReduceFn find_floating(ReduceOp op) {
  return find_real(op, []<class Op>(Op) -> ReduceFn { return reduce<Plain<T>, Op>; });
}

template <class H>
ReduceFn find_half(ReduceOp op) {
  return find_real(op, []<class Op>(Op) -> ReduceFn { return reduce_half<H, Op>; });
}

template <class T>
ReduceFn find_complex(ReduceOp op) {
  if (op == ReduceOp::kSum || op == ReduceOp::kAvg) return reduce<Plain<T>, Sum, 2>;
  if (op == ReduceOp::kProduct) return complex_product<T>;
  return nullptr;
}

ReduceFn find_here(ReduceOp op, DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return find_integer<uint8_t>(op);
    case DType::kInt8:
      return find_integer<int8_t>(op);
    case DType::kInt16:
      return find_integer<int16_t>(op);
    case DType::kInt32:
      return find_integer<int32_t>(op);
    case DType::kInt64:
      return find_integer<int64_t>(op);
    case DType::kBool:
      return find_bool(op);
    case DType::kFloat16:
      return find_half<Fp16>(op);
    case DType::kBFloat16:
      return find_half<Bf16>(op);
    case DType::kFloat32:
      return find_floating<float>(op);
    case DType::kFloat64:
      return find_floating<double>(op);
    case DType::kComplex64:
      return find_complex<float>(op);
    case DType::kComplex128:
      return find_complex<double>(op);
  }
  return nullptr;
}

}  // namespace
}  // namespace aikido::kernels

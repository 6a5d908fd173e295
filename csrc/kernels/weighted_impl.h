// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The loops of weighted_sum.h, written once and compiled once per instruction set, as
// reduce_impl.h is. Accumulators stay in vector registers over all sources. In an
// unnamed namespace.

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "kernels/reduce_fold.h"
#include "kernels/reduce_half.h"
#include "kernels/reduce_ops.h"
#include "kernels/weighted_sum.h"

namespace aikido::kernels {
namespace {

// Elements that are their own accumulators.
template <class T>
struct WeightedReal {
  using Stored = T;
  using Acc = T;
  using StoredVec = typename Vector<T, kVectorBytes>::Type;
  using AccVec = StoredVec;
  template <class V>
  static V widen(V value) {
    return value;
  }
  template <class V>
  static V narrow(V value) {
    return value;
  }
};

// fp16 or bf16, which accumulate in fp32.
template <class H>
struct WeightedHalf : H {
  using Stored = uint16_t;
  using Acc = float;
  using StoredVec = HalfVec;
  using AccVec = FloatVec;
};

// One step for `num_vecs` values of V, stored elements or vectors of them, at byte `at`
// of each buffer. A is the matching accumulator.
template <class E, class V, class A, size_t num_vecs>
void weighted_step(Byte* out, const void* const* sources, const double* factors,
                   size_t num_sources, size_t at) {
  const auto term = [&](size_t k, size_t v) -> A {
    const Byte* from = static_cast<const Byte*>(sources[k]) + at + v * sizeof(V);
    return E::widen(load_unaligned<V>(from)) * static_cast<typename E::Acc>(factors[k]);
  };
  A acc[num_vecs];
  for (size_t v = 0; v < num_vecs; ++v) acc[v] = term(0, v);
  for (size_t k = 1; k < num_sources; ++k)
    for (size_t v = 0; v < num_vecs; ++v) acc[v] = acc[v] + term(k, v);
  for (size_t v = 0; v < num_vecs; ++v)
    store_unaligned<V>(out + at + v * sizeof(V), E::narrow(acc[v]));
}

// `Lanes` elements of E make one element of the dtype.
template <class E, size_t Lanes = 1>
void weighted_sum(void* out, const void* const* sources, const double* factors,
                  size_t num_sources, size_t count) {
  using Stored = typename E::Stored;
  using StoredVec = typename E::StoredVec;
  using AccVec = typename E::AccVec;
  constexpr size_t kStep = kVecsInRow * sizeof(StoredVec);
  const auto to = static_cast<Byte*>(out);
  const size_t bytes = count * Lanes * sizeof(Stored);
  size_t at = 0;
  for (; at + kStep <= bytes; at += kStep)
    weighted_step<E, StoredVec, AccVec, kVecsInRow>(to, sources, factors, num_sources,
                                                    at);
  for (; at + sizeof(StoredVec) <= bytes; at += sizeof(StoredVec))
    weighted_step<E, StoredVec, AccVec, 1>(to, sources, factors, num_sources, at);
  for (; at < bytes; at += sizeof(Stored))
    weighted_step<E, Stored, typename E::Acc, 1>(to, sources, factors, num_sources, at);
}

WeightedSumFn find_weighted_here(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return weighted_sum<WeightedHalf<Fp16>>;
    case DType::kBFloat16:
      return weighted_sum<WeightedHalf<Bf16>>;
    case DType::kFloat32:
      return weighted_sum<WeightedReal<float>>;
    case DType::kFloat64:
      return weighted_sum<WeightedReal<double>>;
    case DType::kComplex64:
      return weighted_sum<WeightedReal<float>, 2>;
    case DType::kComplex128:
      return weighted_sum<WeightedReal<double>, 2>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace aikido::kernels

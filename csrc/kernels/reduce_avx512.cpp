// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Built with AVX-512 F, BW, DQ, VL at full width; reduce.cpp asks the CPU first.
#include "kernels/reduce_impl.h"
#include "kernels/reduce_sets.h"
#include "kernels/weighted_impl.h"

namespace aikido::kernels {

ReduceFn find_in_avx512(ReduceOp op, DType dtype) {
  return find_here(op, dtype);
}

WeightedSumFn find_weighted_in_avx512(DType dtype) {
  return find_weighted_here(dtype);
}

}  // namespace aikido::kernels

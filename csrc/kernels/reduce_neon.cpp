// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Built for 64-bit Arm, where NEON and its fp16 conversions are always there.
#include "kernels/reduce_impl.h"
#include "kernels/reduce_sets.h"
#include "kernels/weighted_impl.h"

namespace aikido::kernels {

ReduceFn find_in_neon(ReduceOp op, DType dtype) {
  return find_here(op, dtype);
}

WeightedSumFn find_weighted_in_neon(DType dtype) {
  return find_weighted_here(dtype);
}

}  // namespace aikido::kernels

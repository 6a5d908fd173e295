// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The portable build: whatever every CPU of the architecture has.
#include "kernels/reduce_impl.h"
#include "kernels/reduce_sets.h"
#include "kernels/weighted_impl.h"

namespace aikido::kernels {

ReduceFn find_in_scalar(ReduceOp op, DType dtype) {
  return find_here(op, dtype);
}

WeightedSumFn find_weighted_in_scalar(DType dtype) {
  return find_weighted_here(dtype);
}

}  // namespace aikido::kernels

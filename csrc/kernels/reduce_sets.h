// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Interface between reduce_<set>.cpp and its users, reduce.cpp and weighted_sum.cpp:
// the function of one instruction set for a dtype. nullptr if it is not defined for the
// dtype. A returned function may be called only on a CPU with that set. Sets of other
// architectures are not defined.

#include "base/types.h"
#include "kernels/reduce.h"
#include "kernels/weighted_sum.h"

namespace aikido::kernels {

ReduceFn find_in_scalar(ReduceOp op, DType dtype);
ReduceFn find_in_avx2(ReduceOp op, DType dtype);
ReduceFn find_in_avx512(ReduceOp op, DType dtype);
ReduceFn find_in_neon(ReduceOp op, DType dtype);

WeightedSumFn find_weighted_in_scalar(DType dtype);
WeightedSumFn find_weighted_in_avx2(DType dtype);
WeightedSumFn find_weighted_in_avx512(DType dtype);
WeightedSumFn find_weighted_in_neon(DType dtype);

}  // namespace aikido::kernels

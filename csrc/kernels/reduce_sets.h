// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What reduce_<set>.cpp gives to reduce.cpp, and nobody else: the function of one
// instruction set for a pair, nullptr when the pair is not defined. A result may only
// be called on a CPU that has the set. Those of another architecture are not defined.

#include "base/types.h"
#include "kernels/reduce.h"

namespace aikido::kernels {

ReduceFn find_in_scalar(ReduceOp op, DType dtype);
ReduceFn find_in_avx2(ReduceOp op, DType dtype);
ReduceFn find_in_avx512(ReduceOp op, DType dtype);
ReduceFn find_in_neon(ReduceOp op, DType dtype);

}  // namespace aikido::kernels

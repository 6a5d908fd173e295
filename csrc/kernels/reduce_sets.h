// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Interface between reduce_<set>.cpp and reduce.cpp: the function of one instruction
// set for a pair of operation and dtype. nullptr if the pair is not defined. A returned
// function may be called only on a CPU with that set. Sets of other architectures are
// not defined.

#include "base/types.h"
#include "kernels/reduce.h"

namespace aikido::kernels {

ReduceFn find_in_scalar(ReduceOp op, DType dtype);
ReduceFn find_in_avx2(ReduceOp op, DType dtype);
ReduceFn find_in_avx512(ReduceOp op, DType dtype);
ReduceFn find_in_neon(ReduceOp op, DType dtype);

}  // namespace aikido::kernels

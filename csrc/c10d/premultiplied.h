// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What a rank contributes to a PREMUL_SUM: its tensor times its own factor, which is a
// number or a tensor of one element. The members then make a plain sum. Pure functions;
// any thread.

#include "c10d/tensor_check.h"

namespace aikido::adapter {

bool is_premultiplied(const ::c10d::ReduceOp& op);

// Throws if `op` is a PREMUL_SUM without a factor, or if `dtype` is no floating point:
// a factor of one half is nothing that integers have.
void check_factor(const CallSite& site, const ::c10d::ReduceOp& op, DType dtype);

// `tensor` with any other op. Else a new tensor of the same dtype, shape and device; no
// gradient goes through it. Requires: check_factor() has passed.
at::Tensor premultiplied(const ::c10d::ReduceOp& op, const at::Tensor& tensor);

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Contribution to a PREMUL_SUM: the tensor times the rank's own factor, which is a
// number or a tensor of one element. The members then make a plain sum. Pure functions;
// any thread.

#include "c10d/common/tensor_check.h"

namespace aikido::adapter {

bool is_premultiplied(const ::c10d::ReduceOp& op);

// Throws if `op` is a PREMUL_SUM without a factor, or if `dtype` is not floating point,
// because integers cannot represent factors such as one half.
void check_factor(const CallSite& site, const ::c10d::ReduceOp& op, DType dtype);

// Returns `tensor` for any other op. Otherwise a new tensor of the same dtype, shape
// and device, without gradient. Requires: check_factor() has passed.
at::Tensor premultiplied(const ::c10d::ReduceOp& op, const at::Tensor& tensor);

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// All checks of what a user passes, and their sentences: which argument, both values,
// which rank, what to do. They throw Error(kInvalidArgument or kUnsupported) before
// anything is sent or counted.

#include <string>
#include <vector>

#include "base/types.h"
#include "c10d/compat.h"
#include "straggler/policy.h"

namespace aikido::adapter {

// Who is calling what, for the sentences.
struct CallSite {
  const char* call;  // "all_reduce"
  int rank;
};

// The dtype that travels; for plain copies, anything else goes as bytes.
DType dtype_for_copy(const at::Tensor& tensor);
// The dtype to reduce in; throws when aikido cannot.
DType dtype_for_reduction(const CallSite& site, const at::Tensor& tensor);
ReduceOp reduce_op(const CallSite& site, const ::c10d::ReduceOp& op, DType dtype);

// Dense, contiguous, on a CPU or CUDA device.
void check_tensor(const CallSite& site, const char* argument, const at::Tensor& tensor);
// The list holds exactly one tensor, which passes check_tensor.
const at::Tensor& check_single(const CallSite& site, const char* argument,
                               const std::vector<at::Tensor>& tensors);
// dtype, device and number of elements of `other` are those of `tensor`.
void check_same(const CallSite& site, const char* argument, const at::Tensor& tensor,
                const char* other_argument, const at::Tensor& other);
void check_rank(const CallSite& site, const char* argument, int64_t rank, int size);
// A policy that may skip is for sums and means of floating point tensors.
void check_policy(const CallSite& site, const straggler::PolicyOptions& policy,
                  ReduceOp op, DType dtype, int size);

}  // namespace aikido::adapter

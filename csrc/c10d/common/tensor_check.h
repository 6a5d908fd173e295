// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Checks of user arguments, with their error texts: the argument, both values, the
// rank, the remedy. They throw Error(kInvalidArgument or kUnsupported) before any data
// is sent. If other ranks can be waiting in the same call, they first receive the
// reason.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "c10d/common/compat.h"
#include "straggler/data_shard.h"

namespace aikido::adapter {

// Name of the call and the rank, for error texts.
struct CallSite {
  const char* call;  // "all_reduce"
  int rank;
  // For collectives: sends the reason of a refusal to the other ranks, which wait.
  // Returns the number of the call; 0: none.
  std::function<uint64_t(const Status&)> on_refused = {};
};

// Name of a tensor in error texts: the argument, and the position if it is a list or a
// list of lists.
struct Argument {
  Argument(const char* argument_name) : name(argument_name) {}
  // An entry of the list.
  Argument operator[](size_t place) const {
    Argument entry = *this;
    (index < 0 ? entry.index : entry.inner_index) = static_cast<int32_t>(place);
    return entry;
  }
  const char* name;
  int32_t index = -1,
          inner_index = -1;  // plain integers, which travel in registers in each call
};
std::ostream& operator<<(std::ostream& out, const Argument& argument);

// Sends the reason `why` to the other ranks of the call, then throws it.
[[noreturn]] void raise_refusal(const CallSite& site, const Status& why);

// The dtype on the wire. For plain copies, an unknown dtype goes as bytes.
DType dtype_for_copy(const at::Tensor& tensor);
// The dtype of the reduction. Throws if aikido cannot reduce it.
DType dtype_for_reduction(const CallSite& site, const at::Tensor& tensor);
ReduceOp reduce_op(const CallSite& site, const ::c10d::ReduceOp& op, DType dtype);

// Use of a tensor. A written tensor must have a separate place for each element.
enum class Use : uint8_t { kRead, kWrite };

// Checks that the tensor is dense, with any strides, on a CPU or CUDA device or a
// device of a torch extension, and has memory for all elements.
void check_tensor(const CallSite& site, Argument argument, const at::Tensor& tensor,
                  Use use);
// Checks that it is contiguous too, for calls where c10d requires that.
void check_contiguous(const CallSite& site, const char* argument,
                      const at::Tensor& tensor);
// The list has exactly one tensor, which passes check_tensor().
const at::Tensor& check_single(const CallSite& site, const char* argument,
                               const std::vector<at::Tensor>& tensors, Use use);
// `other` has the dtype, device and number of elements of `tensor`.
void check_same(const CallSite& site, Argument argument, const at::Tensor& tensor,
                Argument other_argument, const at::Tensor& other);
// As check_same(), for all `others`.
void check_all_same(const CallSite& site, Argument argument, const at::Tensor& tensor,
                    Argument other_argument, const std::vector<at::Tensor>& others);
// All pass check_tensor(): exactly `count` of them, or at least one.
void check_list(const CallSite& site, Argument argument,
                const std::vector<at::Tensor>& tensors, std::optional<int> count,
                Use use);
void check_count(const CallSite& site, Argument argument, size_t given, int count);
// c10d passes one list per device; there must be exactly one.
const std::vector<at::Tensor>& check_single_list(
    const CallSite& site, const char* argument,
    const std::vector<std::vector<at::Tensor>>& lists);
// `other`, or all `others`, have the dtype and device of `tensor`.
void check_same_kind(const CallSite& site, Argument argument, const at::Tensor& tensor,
                     Argument other_argument, const at::Tensor& other);
void check_all_same_kind(const CallSite& site, Argument argument,
                         const at::Tensor& tensor, Argument other_argument,
                         const std::vector<at::Tensor>& others);
// `large` has the dtype and device of `small` and `times` as many elements.
void check_times(const CallSite& site, const char* small_argument,
                 const at::Tensor& small, const char* large_argument,
                 const at::Tensor& large, int times);
// Contiguous tensors, at least one: `inputs` to read, as many `outputs` to write.
void check_pairs(const CallSite& site, const std::vector<at::Tensor>& inputs,
                 const std::vector<at::Tensor>& outputs);
// `splits` divides the first dimension of `tensor` among `size` ranks. Empty: evenly.
void check_splits(const CallSite& site, const char* argument, const at::Tensor& tensor,
                  const char* splits_argument, const std::vector<int64_t>& splits,
                  int size);
// The list holds exactly one sparse COO tensor.
void check_sparse(const CallSite& site, const char* argument,
                  const std::vector<at::Tensor>& tensors);
// Only sums and means are supported for `what`.
void check_sum(const CallSite& site, ReduceOp op, const char* what);
// The block of a rank for itself has the same size in both.
void check_own_bytes(const CallSite& site, size_t in_input, size_t in_output);
void check_rank(const CallSite& site, const char* argument, int64_t rank, int size);
// A policy that may skip is for sums and means of floating point tensors.
void check_policy(const CallSite& site, const straggler::PolicyOptions& policy,
                  ReduceOp op, DType dtype, int size);
void check_no_backups(const CallSite& site, const straggler::PolicyOptions& policy);
// The weight of a contribution, if there is one, is in its range.
void check_weight(const CallSite& site, std::optional<double> weight);
// Data shard that `rank` contributes, from the value given by its caller.
int32_t check_data_shard(const CallSite& site, const straggler::PolicyOptions& policy,
                         int rank, int size, int32_t said);

// Divides a contiguous tensor into `size` equal parts. Requires: its number of elements
// is a multiple of `size`.
std::vector<at::Tensor> equal_blocks(const at::Tensor& tensor, int size);

}  // namespace aikido::adapter

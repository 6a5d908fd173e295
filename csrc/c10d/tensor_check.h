// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// All checks of what a user passes, and their sentences: which argument, both values,
// which rank, what to do. They throw Error(kInvalidArgument or kUnsupported) before
// any data is sent; where others wait for the call they are told first.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "c10d/compat.h"
#include "straggler/data_shard.h"

namespace aikido::adapter {

// Who is calling what, for the sentences.
struct CallSite {
  const char* call;  // "all_reduce"
  int rank;
  // Of a collective, for which the others wait: returns its number, 0 for none.
  std::function<uint64_t(const Status&)> on_refused = {};
};

// How a sentence calls a tensor: by the argument, and its place where that is a list,
// or one of lists.
struct Argument {
  Argument(const char* argument_name) : name(argument_name) {}
  // What is in it.
  Argument operator[](size_t place) const {
    Argument entry = *this;
    (index < 0 ? entry.index : entry.inner_index) = static_cast<int32_t>(place);
    return entry;
  }
  const char* name;
  int32_t index = -1, inner_index = -1;  // in registers, as each call passes some
};
std::ostream& operator<<(std::ostream& out, const Argument& argument);

// Throws `why`; the others are told first.
[[noreturn]] void raise_refusal(const CallSite& site, const Status& why);

// The dtype that travels; for plain copies, anything else goes as bytes.
DType dtype_for_copy(const at::Tensor& tensor);
// The dtype to reduce in; throws when aikido cannot.
DType dtype_for_reduction(const CallSite& site, const at::Tensor& tensor);
ReduceOp reduce_op(const CallSite& site, const ::c10d::ReduceOp& op, DType dtype);

// What a call does with a tensor. One that is written has a place for each element.
enum class Use : uint8_t { kRead, kWrite };

// Dense, of any strides, on a CPU or CUDA device or one that an extension of torch
// brings, with memory for all its elements.
void check_tensor(const CallSite& site, Argument argument, const at::Tensor& tensor,
                  Use use);
// Contiguous as well: for calls where c10d itself asks for it.
void check_contiguous(const CallSite& site, const char* argument,
                      const at::Tensor& tensor);
// The list holds exactly one tensor, which passes check_tensor.
const at::Tensor& check_single(const CallSite& site, const char* argument,
                               const std::vector<at::Tensor>& tensors, Use use);
// dtype, device and number of elements of `other` are those of `tensor`.
void check_same(const CallSite& site, Argument argument, const at::Tensor& tensor,
                Argument other_argument, const at::Tensor& other);
// The same of all `others`.
void check_all_same(const CallSite& site, Argument argument, const at::Tensor& tensor,
                    Argument other_argument, const std::vector<at::Tensor>& others);
// All pass check_tensor; exactly `count` of them, or at least one. Throws nothing else.
void check_list(const CallSite& site, Argument argument,
                const std::vector<at::Tensor>& tensors, std::optional<int> count,
                Use use);
void check_count(const CallSite& site, Argument argument, size_t given, int count);
// c10d hands a list per device; there is exactly one.
const std::vector<at::Tensor>& check_single_list(
    const CallSite& site, const char* argument,
    const std::vector<std::vector<at::Tensor>>& lists);
// dtype and device of `other`, or of all `others`, are those of `tensor`.
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
// `splits` divides the first dimension of `tensor` among `size` ranks; none: evenly.
void check_splits(const CallSite& site, const char* argument, const at::Tensor& tensor,
                  const char* splits_argument, const std::vector<int64_t>& splits,
                  int size);
// The list holds exactly one sparse COO tensor.
void check_sparse(const CallSite& site, const char* argument,
                  const std::vector<at::Tensor>& tensors);
// Only sums and means are defined for `what`.
void check_sum(const CallSite& site, ReduceOp op, const char* what);
// What a rank has for itself is as much in both.
void check_own_bytes(const CallSite& site, size_t in_input, size_t in_output);
void check_rank(const CallSite& site, const char* argument, int64_t rank, int size);
// A policy that may skip is for sums and means of floating point tensors.
void check_policy(const CallSite& site, const straggler::PolicyOptions& policy,
                  ReduceOp op, DType dtype, int size);
void check_no_backups(const CallSite& site, const straggler::PolicyOptions& policy);
// What `rank` contributes, made of what its caller says.
int32_t check_data_shard(const CallSite& site, const straggler::PolicyOptions& policy,
                         int rank, int size, int32_t said);

// `size` equal parts of a contiguous tensor, one behind another. Requires that its
// elements can be divided so.
std::vector<at::Tensor> equal_blocks(const at::Tensor& tensor, int size);

}  // namespace aikido::adapter

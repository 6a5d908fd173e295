// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/common/tensor_check.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>

#include "c10d/common/error.h"
#include "c10d/common/premultiplied.h"
#include "collectives/weights.h"
#include "kernels/reduce.h"

namespace aikido::adapter {
namespace {

template <class... Args>
[[noreturn]] void refuse(const CallSite& site, const Args&... args) {
  raise_refusal(site, {Code::kInvalidArgument,
                       concat(site.call, " on rank ", site.rank, ": ", args...),
                       Rank(site.rank)});
}

std::optional<DType> known_dtype(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return DType::kUint8;
    case at::kChar:
      return DType::kInt8;
    case at::kShort:
      return DType::kInt16;
    case at::kInt:
      return DType::kInt32;
    case at::kLong:
      return DType::kInt64;
    case at::kBool:
      return DType::kBool;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kComplexFloat:
      return DType::kComplex64;
    case at::kComplexDouble:
      return DType::kComplex128;
    default:
      return std::nullopt;
  }
}

// The elements need memory: storage that was given back, and tensors without storage,
// are refused.
void check_memory(const CallSite& site, Argument argument, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const size_t given = tensor.has_storage() ? tensor.storage().nbytes() : 0;
  const auto offset = static_cast<size_t>(tensor.storage_offset());
  const size_t needed =
      tensor.is_contiguous()
          ? (offset + static_cast<size_t>(tensor.numel())) * tensor.itemsize()
          : at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                             tensor.itemsize(), offset);
  if (tensor.has_storage() && given < needed) {
    refuse(site, "argument ", argument, " of shape ", tensor.sizes(), " needs ", needed,
           " bytes of storage, which has ", given,
           "; it was freed or resized (untyped_storage().resize_): allocate it again "
           "before the call");
  }
  if (!tensor.has_storage() || tensor.storage().data() == nullptr) {
    refuse(site, "argument ", argument, " of shape ", tensor.sizes(),
           " has no memory behind it (a fake or zero tensor, or one that wraps "
           "others); pass a tensor that holds its elements, such as a local part");
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Argument& argument) {
  out << argument.name;
  for (const int32_t place : {argument.index, argument.inner_index})
    if (place >= 0) out << '[' << place << ']';
  return out;
}

void raise_refusal(const CallSite& site, const Status& why) {
  raise(why, site.call, site.on_refused ? site.on_refused(why) : 0);
}

DType dtype_for_copy(const at::Tensor& tensor) {
  return known_dtype(tensor.scalar_type()).value_or(DType::kUint8);
}

DType dtype_for_reduction(const CallSite& site, const at::Tensor& tensor) {
  const auto dtype = known_dtype(tensor.scalar_type());
  if (!dtype) {
    refuse(
        site, "argument tensor has dtype ", tensor.scalar_type(),
        ", which cannot be reduced; convert it to float32 or an integer dtype first");
  }
  return *dtype;
}

ReduceOp reduce_op(const CallSite& site, const ::c10d::ReduceOp& op, DType dtype) {
  const auto map = [&]() -> std::optional<ReduceOp> {
    switch (op.op_) {
      case ::c10d::ReduceOp::SUM:
      case ::c10d::ReduceOp::PREMUL_SUM:
        return ReduceOp::kSum;
      case ::c10d::ReduceOp::AVG:
        return ReduceOp::kAvg;
      case ::c10d::ReduceOp::PRODUCT:
        return ReduceOp::kProduct;
      case ::c10d::ReduceOp::MIN:
        return ReduceOp::kMin;
      case ::c10d::ReduceOp::MAX:
        return ReduceOp::kMax;
      case ::c10d::ReduceOp::BAND:
        return ReduceOp::kBand;
      case ::c10d::ReduceOp::BOR:
        return ReduceOp::kBor;
      case ::c10d::ReduceOp::BXOR:
        return ReduceOp::kBxor;
      default:
        return std::nullopt;
    }
  }();
  if (!map) refuse(site, "argument op is none of torch's operations; use SUM");
  check_factor(site, op, dtype);
  if (kernels::find_reduce(*map, dtype) == nullptr) {
    refuse(site, "argument op is ", name_of(*map), ", which is not defined for dtype ",
           name_of(dtype));
  }
  return *map;
}

void check_tensor(const CallSite& site, Argument argument, const at::Tensor& tensor,
                  Use use) {
  if (!tensor.defined()) refuse(site, "argument ", argument, " is undefined");
  if (tensor.layout() != at::kStrided) {
    refuse(site, "argument ", argument, " has layout ", tensor.layout(),
           ", only dense (strided) tensors are taken; use to_dense()");
  }
  if (tensor.is_nested()) {
    refuse(
        site, "argument ", argument,
        " is a nested tensor, which has no shape that ranks could agree on; pass its "
        "parts (unbind()), or one tensor padded to a shape (to_padded_tensor())");
  }
  const at::Device device = tensor.device();
  if (!device.is_cpu() && !device.is_cuda() && !device.is_privateuseone()) {
    refuse(site, "argument ", argument, " is on device ", tensor.device(),
           ", only cpu and cuda are supported");
  }
  check_memory(site, argument, tensor);
  if (use == Use::kWrite && !tensor.is_contiguous() &&
      at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    refuse(site, "argument ", argument, " of shape ", tensor.sizes(), " and strides ",
           tensor.strides(),
           " has elements that share memory, so no result can be written there; pass "
           ".contiguous() or .clone()");
  }
}

void check_contiguous(const CallSite& site, const char* argument,
                      const at::Tensor& tensor) {
  check_tensor(site, argument, tensor, Use::kRead);
  if (!tensor.is_contiguous()) {
    raise_refusal(
        site, {Code::kInvalidArgument,
               concat("Tensors must be contiguous: ", site.call, " on rank ", site.rank,
                      ", argument ", argument, " has shape ", tensor.sizes(),
                      " and strides ", tensor.strides(), "; pass .contiguous()"),
               Rank(site.rank)});
  }
}

const at::Tensor& check_single(const CallSite& site, const char* argument,
                               const std::vector<at::Tensor>& tensors, Use use) {
  if (tensors.size() != 1) {
    refuse(site, "argument ", argument, " is a list of ", tensors.size(),
           " tensors; exactly one is taken");
  }
  check_tensor(site, argument, tensors[0], use);
  return tensors[0];
}

void check_same(const CallSite& site, Argument argument, const at::Tensor& tensor,
                Argument other_argument, const at::Tensor& other) {
  check_same_kind(site, argument, tensor, other_argument, other);
  if (tensor.numel() != other.numel()) {
    refuse(site, "argument ", other_argument, " has shape ", other.sizes(), " (",
           other.numel(), " elements) but argument ", argument, " has ", tensor.sizes(),
           " (", tensor.numel(), ")");
  }
}

void check_all_same(const CallSite& site, Argument argument, const at::Tensor& tensor,
                    Argument other_argument, const std::vector<at::Tensor>& others) {
  for (size_t i = 0; i < others.size(); ++i)
    check_same(site, argument, tensor, other_argument[i], others[i]);
}

void check_list(const CallSite& site, Argument argument,
                const std::vector<at::Tensor>& tensors, std::optional<int> count,
                Use use) {
  if (count) check_count(site, argument, tensors.size(), *count);
  if (tensors.empty()) refuse(site, "argument ", argument, " is an empty list");
  for (size_t i = 0; i < tensors.size(); ++i)
    check_tensor(site, argument[i], tensors[i], use);
}

void check_count(const CallSite& site, Argument argument, size_t given, int count) {
  if (given != static_cast<size_t>(count)) {
    refuse(site, "argument ", argument, " has ", given, " tensors; ", count,
           count == 0 ? " are taken, for this rank is not the root" : " are needed");
  }
}

const std::vector<at::Tensor>& check_single_list(
    const CallSite& site, const char* argument,
    const std::vector<std::vector<at::Tensor>>& lists) {
  if (lists.size() != 1) {
    refuse(site, "argument ", argument, " is ", lists.size(),
           " lists of tensors; exactly one is taken");
  }
  return lists[0];
}

void check_same_kind(const CallSite& site, Argument argument, const at::Tensor& tensor,
                     Argument other_argument, const at::Tensor& other) {
  if (tensor.scalar_type() != other.scalar_type()) {
    refuse(site, "argument ", other_argument, " has dtype ", other.scalar_type(),
           " but argument ", argument, " has ", tensor.scalar_type(),
           "; use one dtype");
  }
  if (tensor.device().type() != other.device().type()) {
    refuse(site, "argument ", other_argument, " is on ", other.device(),
           " but argument ", argument, " is on ", tensor.device(), "; use one device");
  }
}

void check_all_same_kind(const CallSite& site, Argument argument,
                         const at::Tensor& tensor, Argument other_argument,
                         const std::vector<at::Tensor>& others) {
  for (size_t i = 0; i < others.size(); ++i)
    check_same_kind(site, argument, tensor, other_argument[i], others[i]);
}

void check_times(const CallSite& site, const char* small_argument,
                 const at::Tensor& small, const char* large_argument,
                 const at::Tensor& large, int times) {
  check_same_kind(site, small_argument, small, large_argument, large);
  if (large.numel() != small.numel() * times) {
    refuse(site, "argument ", large_argument, " has shape ", large.sizes(), " (",
           large.numel(), " elements) but ", times, " times argument ", small_argument,
           " of shape ", small.sizes(), " is needed (", small.numel() * times, ")");
  }
}

void check_pairs(const CallSite& site, const std::vector<at::Tensor>& inputs,
                 const std::vector<at::Tensor>& outputs) {
  const int count = static_cast<int>(inputs.size());
  check_list(site, "inputs", inputs, std::nullopt, Use::kRead);
  check_list(site, "outputs", outputs, count, Use::kWrite);
}

void check_splits(const CallSite& site, const char* argument, const at::Tensor& tensor,
                  const char* splits_argument, const std::vector<int64_t>& splits,
                  int size) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    if (rows % size != 0) {
      refuse(site, "argument ", argument, " has ", rows,
             " rows, which cannot be split evenly among ", size, " ranks; give ",
             splits_argument);
    }
    return;
  }
  if (splits.size() != static_cast<size_t>(size)) {
    refuse(site, "argument ", splits_argument, " has ", splits.size(), " entries; ",
           size, " are needed, one per rank");
  }
  int64_t sum = 0;
  for (const int64_t n : splits) {
    if (n < 0) refuse(site, "argument ", splits_argument, " has the entry ", n);
    sum += n;
  }
  if (sum != rows || tensor.dim() == 0) {
    refuse(site, "argument ", splits_argument, " adds up to ", sum, " but argument ",
           argument, " of shape ", tensor.sizes(), " has ", rows,
           " rows in its first dimension");
  }
}

void check_sparse(const CallSite& site, const char* argument,
                  const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1) {
    refuse(site, "argument ", argument, " is a list of ", tensors.size(),
           " tensors; exactly one is taken");
  }
  if (!tensors[0].defined()) refuse(site, "argument ", argument, " is undefined");
  if (tensors[0].layout() != at::kSparse) {
    refuse(site, "argument ", argument, " has layout ", tensors[0].layout(),
           "; only sparse COO tensors are taken here");
  }
  check_memory(site, argument, tensors[0]._indices());
  check_memory(site, argument, tensors[0]._values());
}

void check_sum(const CallSite& site, ReduceOp op, const char* what) {
  if (op == ReduceOp::kSum || op == ReduceOp::kAvg) return;
  refuse(site, "argument op is ", name_of(op), " for ", what,
         ", for which only SUM and AVG are defined; use to_dense() first");
}

std::vector<at::Tensor> equal_blocks(const at::Tensor& tensor, int size) {
  std::vector<at::Tensor> blocks;
  const at::Tensor flat = tensor.view({-1});
  const int64_t each = flat.numel() / size;
  for (int r = 0; r < size; ++r) blocks.push_back(flat.narrow(0, r * each, each));
  return blocks;
}

void check_own_bytes(const CallSite& site, size_t in_input, size_t in_output) {
  if (in_input == in_output) return;
  refuse(site, "what this rank has for itself has ", in_input,
         " bytes in the input and ", in_output, " in the output; give both as much");
}

void check_rank(const CallSite& site, const char* argument, int64_t rank, int size) {
  if (rank < 0 || rank >= size) {
    refuse(site, "argument ", argument, " is ", rank, "; the group has ranks 0 to ",
           size - 1);
  }
}

void check_policy(const CallSite& site, const straggler::PolicyOptions& policy,
                  ReduceOp op, DType dtype, int size) {
  const Status valid = straggler::validate(policy, size);
  if (valid.has_failed()) refuse(site, valid.message());
  if (policy.kind == straggler::Kind::kWaitAll) return;
  if (op != ReduceOp::kSum && op != ReduceOp::kAvg) {
    refuse(site, "policy ", straggler::to_string(policy), " with op ", name_of(op),
           ": a member may be left out of a sum or a mean only");
  }
  if (!is_floating(dtype)) {
    refuse(site, "policy ", straggler::to_string(policy), " with dtype ",
           name_of(dtype),
           ": a member may be left out of floating point data only; use WaitAll()");
  }
}

void check_no_backups(const CallSite& site, const straggler::PolicyOptions& policy) {
  if (policy.backups > 0)
    refuse(site, "policy ", straggler::to_string(policy), " is for all_reduce only");
}

void check_weight(const CallSite& site, std::optional<double> weight) {
  if (!weight) return;
  const Status valid = collectives::check_weight(*weight);
  if (valid.has_failed()) refuse(site, valid.message());
}

int32_t check_data_shard(const CallSite& site, const straggler::PolicyOptions& policy,
                         int rank, int size, int32_t said) {
  auto shard = straggler::data_shard_of(policy, Rank(rank), size, said);
  if (!shard) refuse(site, shard.status().message());
  return *shard;
}

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/common/premultiplied.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "c10d/common/error.h"

namespace aikido::adapter {
namespace {

// The name in every torch from 2.11 on.
using Factor = ::c10d::NCCLPreMulSumSupplement;

const Factor* factor_of(const ::c10d::ReduceOp& op) {
  return dynamic_cast<const Factor*>(op.supplement_.get());
}

}  // namespace

bool is_premultiplied(const ::c10d::ReduceOp& op) {
  return op.op_ == ::c10d::ReduceOp::PREMUL_SUM;
}

void check_factor(const CallSite& site, const ::c10d::ReduceOp& op, DType dtype) {
  if (!is_premultiplied(op)) return;
  const auto refuse = [&](const std::string& what) {
    raise_refusal(
        site, {Code::kInvalidArgument,
               concat(site.call, " on rank ", site.rank, ": ", what), Rank(site.rank)});
  };
  if (factor_of(op) == nullptr) {
    refuse(
        "argument op is PREMUL_SUM without a factor; make it with "
        "torch.distributed._make_nccl_premul_sum(factor)");
  }
  if (!is_floating(dtype)) {
    refuse(
        concat("argument op is PREMUL_SUM, which is defined for floating point, but "
               "the tensor has dtype ",
               name_of(dtype), "; multiply first, then use SUM"));
  }
}

// A factor in a tensor is converted first. Otherwise it would determine the dtype and
// device of the product.
at::Tensor premultiplied(const ::c10d::ReduceOp& op, const at::Tensor& tensor) {
  if (!is_premultiplied(op)) return tensor;
  const at::AutoDispatchBelowADInplaceOrView below;
  const Factor* factor = factor_of(op);
  if (!factor->tensor_factor.defined()) return at::mul(tensor, factor->double_factor);
  return at::mul(tensor, factor->tensor_factor.reshape({}).to(tensor.device(),
                                                              tensor.scalar_type()));
}

}  // namespace aikido::adapter

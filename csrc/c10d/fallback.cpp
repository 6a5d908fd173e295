// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The calls of AikidoBackend that an inner backend does: each is counted by name and
// handed over unchanged.

#include "c10d/error.h"
#include "c10d/process_group.h"

namespace aikido::adapter {

c10::intrusive_ptr<::c10d::Backend> AikidoBackend::fallback(const char* name) {
  const std::lock_guard lock(mutex_);
  if (!fallback_) {
    raise({Code::kUnsupported,
           concat(name, " on rank ", getRank(),
                  ": aikido does not do it itself and group \"", group_name_,
                  "\" was made without an inner backend")});
  }
  ++fallback_calls_[name];
  return fallback_;
}

AikidoBackend::WorkPtr AikidoBackend::allreduce_sparse(
    Tensors& tensors, const ::c10d::AllreduceOptions& opts) {
  return fallback("allreduce_sparse")->allreduce_sparse(tensors, opts);
}
AikidoBackend::WorkPtr AikidoBackend::allreduce_coalesced(
    Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& opts) {
  return fallback("all_reduce_coalesced")->allreduce_coalesced(tensors, opts);
}
AikidoBackend::WorkPtr AikidoBackend::reduce(Tensors& tensors,
                                             const ::c10d::ReduceOptions& opts) {
  return fallback("reduce")->reduce(tensors, opts);
}
AikidoBackend::WorkPtr AikidoBackend::allgather_coalesced(
    std::vector<Tensors>& outputs, Tensors& inputs,
    const ::c10d::AllgatherOptions& opts) {
  return fallback("all_gather_coalesced")->allgather_coalesced(outputs, inputs, opts);
}
AikidoBackend::WorkPtr AikidoBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& opts) {
  return fallback("all_gather_into_tensor_coalesced")
      ->allgather_into_tensor_coalesced(outputs, inputs, opts);
}
AikidoBackend::WorkPtr AikidoBackend::gather(std::vector<Tensors>& outputs,
                                             Tensors& inputs,
                                             const ::c10d::GatherOptions& opts) {
  return fallback("gather")->gather(outputs, inputs, opts);
}
AikidoBackend::WorkPtr AikidoBackend::scatter(Tensors& outputs,
                                              std::vector<Tensors>& inputs,
                                              const ::c10d::ScatterOptions& opts) {
  return fallback("scatter")->scatter(outputs, inputs, opts);
}
AikidoBackend::WorkPtr AikidoBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs,
    const ::c10d::ReduceScatterOptions& opts) {
  return fallback("reduce_scatter")->reduce_scatter(outputs, inputs, opts);
}
AikidoBackend::WorkPtr AikidoBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const ::c10d::ReduceScatterOptions& opts) {
  return fallback("reduce_scatter_tensor")->_reduce_scatter_base(output, input, opts);
}
AikidoBackend::WorkPtr AikidoBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const ::c10d::ReduceScatterOptions& opts) {
  return fallback("reduce_scatter_tensor_coalesced")
      ->reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}
AikidoBackend::WorkPtr AikidoBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                               const ::c10d::AllToAllOptions& opts) {
  return fallback("all_to_all")->alltoall(outputs, inputs, opts);
}
AikidoBackend::WorkPtr AikidoBackend::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits, const ::c10d::AllToAllOptions& opts) {
  return fallback("all_to_all_single")
      ->alltoall_base(output, input, output_splits, input_splits, opts);
}
void AikidoBackend::monitoredBarrier(const ::c10d::BarrierOptions& opts,
                                     bool wait_all) {
  fallback("monitored_barrier")->monitoredBarrier(opts, wait_all);
}

}  // namespace aikido::adapter

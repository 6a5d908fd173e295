// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Route of the data of a call of AikidoBackend: by the inner backend (nccl_calls.cpp),
// in shared device memory (ipc_calls.cpp), or else through the host (staging.h). The
// decision depends only on values that the ranks compare, and on answers that all ranks
// find together. So all ranks decide alike.

#include <algorithm>
#include <utility>

#include "c10d/call_path.h"
#include "c10d/common/call_of.h"
#include "c10d/common/premultiplied.h"
#include "c10d/device/ipc.h"
#include "c10d/device/staging.h"

namespace aikido::adapter {

Route CallPath::route_of(const CallScope& scope, const collectives::Call& call,
                         const Tensors& tensors, const ::c10d::ReduceOp* op,
                         Milliseconds timeout) {
  check_call(scope, call, size());
  if (BackendPtr inner = nccl_for(scope, call, tensors, timeout))
    return {.nccl = std::move(inner)};
  // A rank's own factor is applied on the host.
  const bool may_share = call.kind == collectives::CallKind::kAllreduce &&
                         op != nullptr && !is_premultiplied(*op);
  return {.is_ipc = may_share && ipc_takes(scope, call, tensors[0], timeout)};
}

BackendPtr CallPath::nccl_for(const CallSite& site, const collectives::Call& call,
                              const Tensors& tensors, Milliseconds timeout) {
  const c10::Device device = tensors[0].device();
  const auto inner = group_.routes.nccl();
  if (device.is_cpu() || inner->is_off() || !nccl_takes(call, tensors[0].scalar_type()))
    return {};
  check_process();
  group_.communicator.check();
  check_not_capturing(site, device);
  const GroupContext::StorePtr store = group_.present_store();
  const Milliseconds of_group = this->timeout();
  BackendPtr backend;
  {
    const CallsBeside of_the_finder;
    backend = inner->find(BackendPtr::reclaim_copy(&outer_), device, store,
                          timeout_or(timeout, of_group), of_group);
  }
  const bool is_there =
      backend && std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& t) {
        return t.device() == inner->device();
      });
  if (!is_there) return {};
  if (const Status failure = inner->failure(); failure.has_failed()) {
    const Status why(
        Code::kAborted,
        concat(site.call, " on rank ", site.rank, ": the inner backend of group \"",
               group_.name, "\" was given up (", failure.message(),
               "); make a new group, with devices_nccl=\"off\" if it happens again"),
        Rank(site.rank));
    raise_refusal(site, why);
  }
  return backend;
}

bool CallPath::ipc_takes(const CallSite& site, const collectives::Call& call,
                         const at::Tensor& tensor, Milliseconds timeout) {
  const c10::Device device = tensor.device();
  const auto ipc = group_.routes.ipc();
  if (device.is_cpu() || size() == 1 || call.is_partial() || call.is_weighted ||
      call.count == 0 || ipc->is_off())
    return false;
  check_process();
  group_.communicator.check();
  IpcCall::purge();
  check_not_capturing(site, device);
  const CallsBeside of_the_finder;
  return ipc->find(BackendPtr::reclaim_copy(&outer_), device,
                   timeout_or(timeout, this->timeout())) &&
         device == ipc->device();
}

}  // namespace aikido::adapter

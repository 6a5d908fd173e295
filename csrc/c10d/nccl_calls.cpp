// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Calls of AikidoBackend by the inner backend: see Note [a call by the inner backend]
// in nccl_route.h. If the inner backend is not used, the calls are staged.

#include <algorithm>
#include <cstring>
#include <utility>

#include "c10d/call_scope.h"
#include "c10d/common/call_of.h"
#include "c10d/device/staging.h"
#include "c10d/process_group.h"

namespace aikido::adapter {

using collectives::LocalCall;

std::shared_ptr<NcclRoute> AikidoBackend::nccl_route() const {
  const std::lock_guard lock(mutex_);
  return nccl_route_;
}

AikidoBackend::BackendPtr AikidoBackend::nccl_for(const CallSite& site,
                                                  const collectives::Call& call,
                                                  const Tensors& tensors,
                                                  Milliseconds timeout) {
  const c10::Device device = tensors[0].device();
  const auto inner = this->nccl_route();
  if (device.is_cpu() || inner->is_off() || !nccl_takes(call, tensors[0].scalar_type()))
    return {};
  check_process();
  communicator_.check();
  check_not_capturing(site, device);
  StorePtr store;
  {
    const std::lock_guard lock(mutex_);
    store = store_;
  }
  const Milliseconds of_group = this->timeout();
  BackendPtr backend;
  {
    const CallsBeside of_the_finder;
    backend = inner->find(BackendPtr::reclaim_copy(this), device, store,
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
               group_name_, "\" was given up (", failure.message(),
               "); make a new group, with devices_nccl=\"off\" if it happens again"),
        Rank(site.rank));
    raise_refusal(site, why);
  }
  return backend;
}

AikidoBackend::OwnWork AikidoBackend::submit_nccl(NcclCall what,
                                                  const NcclLaunch& launch) {
  const CallScope site = collective(std::strchr(what.title, ':') + 1);
  what.call.algorithm = Algorithm::kDirect;
  what.call.is_inner = true;
  check_call(site, what.call, getSize());
  LocalCall local = local_call();
  for (int r = 0; r < getSize(); ++r) {
    if (r == getRank()) continue;
    local.out_blocks.push_back({Rank(r), nullptr, 0});
    local.in_blocks.push_back({Rank(r), nullptr, 0});
  }
  const auto inner = this->nccl_route();
  // Weak, because the last release may take long, and this runs on the progress thread.
  local.on_done = [weak = std::weak_ptr(inner)](const Status& status,
                                                const collectives::Outcome&) {
    if (status.has_failed()) NcclRoute::fail(weak.lock(), status);
  };
  const c10::Device device = inner->device();
  const CopySite where{concat(site.call, " on rank ", site.rank, ": the inner backend"),
                       device, what.call.bytes()};
  OwnWork made;
  inner->run(where, [&] {
    NcclTensors tensors;
    const WorkPtr work = launch(tensors);
    inner->on_called();
    AikidoWork::Memory memory;
    memory.results = std::move(what.results);
    memory.held = tensors.all();
    memory.lands_on = device;
    memory.finish = [inner, work, where, device, tensors = std::move(tensors),
                     transfers = services_->transfers] {
      inner->run(where, [&] {
        transfers->queue_up(device, [&] {
          work->wait();
          tensors.write_back();
        });
      });
    };
    made = submit(std::move(what.call), {what.type, what.title}, std::move(local),
                  what.inputs, std::move(memory), what.timeout);
  });
  return made;
}

}  // namespace aikido::adapter

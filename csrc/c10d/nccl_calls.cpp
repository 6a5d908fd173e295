// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Calls of AikidoBackend by the inner backend: see Note [a call by the inner backend]
// in nccl_route.h. If the inner backend is not used, the calls are staged.

#include <utility>

#include "c10d/call_path.h"
#include "c10d/common/call_of.h"
#include "c10d/device/staging.h"

namespace aikido::adapter {

using collectives::LocalCall;

OwnWork CallPath::submit_nccl(const CallScope& scope, NcclCall what,
                              const NcclLaunch& launch) {
  what.call.algorithm = Algorithm::kDirect;
  what.call.is_inner = true;
  LocalCall local = local_call();
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    local.out_blocks.push_back({Rank(r), nullptr, 0});
    local.in_blocks.push_back({Rank(r), nullptr, 0});
  }
  const auto inner = group_.routes.nccl();
  // Weak, because the last release may take long, and this runs on the progress thread.
  local.on_done = [weak = std::weak_ptr(inner)](const Status& status,
                                                const collectives::Outcome&) {
    if (status.has_failed()) NcclRoute::fail(weak.lock(), status);
  };
  const c10::Device device = inner->device();
  const CopySite where{
      concat(scope.call, " on rank ", scope.rank, ": the inner backend"), device,
      what.call.bytes()};
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
                     transfers = group_.services->transfers] {
      inner->run(where, [&] {
        transfers->queue_up(device, [&] {
          work->wait();
          tensors.write_back();
        });
      });
    };
    made = submit(scope, std::move(what.call), {what.type, what.title},
                  std::move(local), what.inputs, std::move(memory), what.timeout);
  });
  return made;
}

}  // namespace aikido::adapter

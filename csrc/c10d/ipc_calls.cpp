// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Calls of AikidoBackend in device memory that all ranks share: see Note [allreduce in
// shared device memory] in ipc.h.

#include <utility>

#include "c10d/call_path.h"
#include "c10d/common/call_of.h"
#include "c10d/device/ipc.h"
#include "c10d/device/staging.h"

namespace aikido::adapter {

using ::c10d::OpType;
using collectives::LocalCall;

namespace {

// Handle of `given`, the stand-in of `tensor`. If its memory cannot be shared, such as
// memory of a user's pool, the stand-in becomes a copy.
DeviceMemory::IpcHandle share(NcclTensors& stand_ins, const at::Tensor& tensor,
                              at::Tensor& given, const CopySite& site) {
  const auto memory = DeviceMemory::of(tensor.device().type());
  try {
    try {
      return memory->share(given);
    } catch (const c10::Error&) {
      given = stand_ins.copy_of(tensor);
      return memory->share(given);
    }
  } catch (...) {
    rethrow(site);
  }
}

}  // namespace

OwnWork CallPath::submit_ipc(const CallScope& scope, collectives::Call call,
                             const at::Tensor& tensor, std::optional<Priority> priority,
                             Milliseconds timeout) {
  call.algorithm = Algorithm::kDirect;
  call.is_inner = true;
  const auto ipc = group_.routes.ipc();
  const c10::Device device = tensor.device();
  LocalCall local = local_call();
  if (priority) local.priority = *priority;
  const TimePoint deadline = SystemClock().now() + timeout_or(timeout, this->timeout());
  OwnWork work;
  coalesced({OpType::ALLREDUCE, "aikido:all_reduce"}, {tensor}, [&] {
    work = batches_.current(rank());
    NcclTensors stand_ins;
    at::Tensor given = stand_ins.in_out(tensor);
    // Makes its own memory, if it shares memory until it is written.
    given.mutable_data_ptr();
    DeviceMemory::IpcHandle handle{};
    if (rank() != IpcCall::kLeader)
      handle = share(stand_ins, tensor, given, ipc_site(rank(), tensor));
    const auto made = std::make_shared<IpcCall>(
        IpcCall::What{call, rank(), size(), deadline, local.priority, work,
                      ipc->begin(), group_.services->num_owed},
        given, handle, ipc->transfers());
    made->add_blocks(local);
    AikidoWork::Memory memory;
    memory.results = {tensor};
    memory.held = {given};
    memory.owner = made;
    memory.num_parts = 1;
    // An idle stream needs no mark. Each mark would be work of this process on the
    // device, which processes use in turns.
    if (const c10::Stream stream = current_stream(device); !stream.query())
      memory.staged.downs.push_back({{Mark::of(stream)}, ipc_site(rank(), tensor), 0});
    if (stand_ins.has_copies()) {
      memory.lands_on = device;
      memory.finish = [device, stand_ins, transfers = group_.services->transfers] {
        transfers->queue_up(device, [&] { stand_ins.write_back(); });
      };
    }
    local.on_done = [made, callback_thread = group_.services->callback_thread,
                     weak = std::weak_ptr(group_.communicator.operator->())](
                        const Status& status, const collectives::Outcome& outcome) {
      made->on_called(status, outcome.seq);
      callback_thread->run([made, status, weak] { made->go_on(status, weak.lock()); });
    };
    submit(scope, std::move(call), {OpType::ALLREDUCE, "aikido:all_reduce"},
           std::move(local), {tensor}, std::move(memory), timeout);
  });
  return work;
}

}  // namespace aikido::adapter

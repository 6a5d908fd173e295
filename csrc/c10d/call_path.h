// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Way of all calls of a group from their entry to the engine. Any thread.
//
//   entry of AikidoBackend: CallScope > checks of the tensors > Call > route_of()
//     host:  Staging  > submit()
//     NCCL:  submit_nccl() > submit(), without data      (nccl_calls.cpp)
//     IPC:   submit_ipc()  > submit(), without data      (ipc_calls.cpp)
//
// route.cpp decides the route. Messages go from their checks to slot(), and from there
// to the communicator of the slot.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c10d/batches.h"
#include "c10d/call_scope.h"
#include "c10d/common/compat.h"
#include "c10d/common/title.h"
#include "c10d/device/nccl_route.h"
#include "c10d/group_context.h"
#include "c10d/work.h"
#include "collectives/call.h"

namespace aikido::adapter {

using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
using OwnWork = c10::intrusive_ptr<AikidoWork>;
using Tensors = std::vector<at::Tensor>;
using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;

// Route of the data of a call: by the inner backend, in device memory that all ranks
// share, or else through the host.
struct Route {
  BackendPtr nccl = {};  // null: another route
  bool is_ipc = false;
};

class CallPath {
 public:
  // Work of a call: its own, or the batch that this thread has started.
  struct Slot {
    OwnWork work;
    bool is_batch;
    TimePoint called_at;
    ActiveCommunicator::Pointer communicator;  // of the call
  };

  // Both must outlive this object. `outer`: for its rank and size, which a change of
  // the members changes, and for the finders of the routes.
  CallPath(ChangingBackend& outer, GroupContext& group)
      : outer_(outer), group_(group), batches_(group.services) {}

  int rank() const { return outer_.getRank(); }
  int size() const { return outer_.getSize(); }
  Milliseconds timeout() const { return group_.timeout; }
  // Of copies between devices and the host.
  const std::shared_ptr<Transfers>& transfers() const {
    return group_.services->transfers;
  }

  // Guards for one try to make a call.
  CallScope collective(const char* call, size_t num_calls = 1) {
    return {*this, call, num_calls};
  }
  CallScope message(const char* call) { return {*this, call, 0}; }
  // Throws in a forked child, which has no progress thread: its calls would never end.
  void check_process() const;
  // Takes the number of a collective that this rank does not make, and tells the others
  // the reason. Returns that number, or 0.
  uint64_t refuse(const Status& why);

  // Checks the call and decides the route of its data. `tensors`: all of the call.
  // `op`: of a call that reduces; else null.
  Route route_of(const CallScope& scope, const collectives::Call& call,
                 const Tensors& tensors, const ::c10d::ReduceOp* op,
                 Milliseconds timeout);
  // With the settings of the group for its calls.
  collectives::LocalCall local_call() const;
  Slot slot(const Title& title, const Tensors& inputs);
  static OwnWork close(Slot slot);
  // One collective. Requires: it has passed route_of() or check_call().
  OwnWork submit(const CallScope& scope, collectives::Call call, const Title& title,
                 collectives::LocalCall local, const Tensors& inputs,
                 AikidoWork::Memory memory, Milliseconds timeout);
  OwnWork submit_nccl(const CallScope& scope, NcclCall what, const NcclLaunch& launch);
  OwnWork submit_ipc(const CallScope& scope, collectives::Call call,
                     const at::Tensor& tensor, std::optional<Priority> priority,
                     Milliseconds timeout);

  // ---- batches
  // All calls that `calls` submits, as one work; part of the batch if there is one.
  WorkPtr coalesced(const Title& title, const Tensors& inputs,
                    const std::function<void()>& calls);
  void start_batch() { batches_.start(rank(), kCoalesced, {}); }
  // Throws if this thread has none.
  OwnWork end_batch();
  bool is_in_batch() { return batches_.current(rank()).defined(); }

 private:
  friend class CallScope;  // for the batches of refused calls

  BackendPtr nccl_for(const CallSite& site, const collectives::Call& call,
                      const Tensors& tensors, Milliseconds timeout);
  bool ipc_takes(const CallSite& site, const collectives::Call& call,
                 const at::Tensor& tensor, Milliseconds timeout);

  ChangingBackend& outer_;
  GroupContext& group_;
  Batches batches_;
};

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The c10d backend: checks arguments, translates, submits, returns work; no logic. One
// object serves cpu and cuda. Methods may be called from any thread, as c10d does.
//
// The calls are in files by kind: *_calls.cpp. route.cpp decides how their data goes.
// lifetime, reconfigure and split change or end the group.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/settings.h"
#include "c10d/call_path.h"
#include "c10d/child_groups.h"
#include "c10d/common/blocks.h"
#include "c10d/common/callback_thread.h"
#include "c10d/common/compat.h"
#include "c10d/common/tensor_check.h"
#include "c10d/common/title.h"
#include "c10d/device/device_routes.h"
#include "c10d/end_hooks.h"
#include "c10d/group_state.h"
#include "c10d/reduction_extras.h"
#include "c10d/store_end.h"
#include "c10d/work.h"
#include "engine/communicator.h"
#include "engine/selector.h"
#include "membership/roster.h"

namespace aikido::adapter {

class AikidoBackend final : public ChangingBackend {
 public:
  struct Config {
    std::string group_name;
    Milliseconds timeout;
    ResolvedSettings settings;
    // False: finds the other ranks by change_members(), not in the store.
    bool connect = true;
    std::optional<Milliseconds> connect_timeout = {};  // empty: `timeout`
  };

  // Connects to all members. Blocks for at most config.connect_timeout. Throws Error.
  AikidoBackend(std::shared_ptr<engine::Engine> engine,
                std::shared_ptr<CallbackThread> callback_thread,
                c10::intrusive_ptr<::c10d::Store> store, int rank, int size,
                Config config);
  const std::string getBackendName() const override { return "aikido"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(Milliseconds timeout) override;
  uint64_t getSequenceNumberForGroup() override;
  void setSequenceNumberForGroup() override {}

  using StorePtr = GroupContext::StorePtr;
  using OptionsPtr = c10::intrusive_ptr<Options>;

  // ---- life and end (lifetime.cpp)
  // In any order, and repeatedly. Another shutdown() waits, for linger_ms.
  void abort() override;
  void shutdown() override;
  // The first shutdown() begins with `hook`, which gets shutdown.linger_ms; rethrows.
  void set_end_hook(EndHooks::EndHook hook) { hooks_.set_end_hook(std::move(hook)); }
  // Rank 0 serves the store and ends it with this group. shutdown() then returns after
  // that, within shutdown.linger_ms. Call it before shutdown().
  void leave_after_rank_0(uint16_t port);
  // shutdown() of this group and of all groups made from it, at the end of the process.
  void shut_down_family();
  // TIMEOUT once a collective has passed its deadline here. SUCCESS again after abort()
  // of this rank, or a change of the members.
  ::c10d::ErrorType getError() override;
  void add_abort_hook(int64_t id, AbortHook hook) override {
    hooks_.add_abort_hook(id, std::move(hook));
  }
  void remove_abort_hook(int64_t id) override { hooks_.remove_abort_hook(id); }

  // ---- other members (reconfigure.cpp)
  std::string handle() const override { return handle_.to_string(); }
  // Until it returns, the group is unchanged, and stays so if it throws. If it
  // succeeds, works in progress fail. Calls of other threads must wait for it.
  WorkPtr change_members(const Reconfiguration& wanted) override;
  uint64_t epoch() const;

  // ---- groups made from this one (split.cpp)
  bool supportsSplitting() const override { return true; }
  // Null on a rank that is not in `ranks`.
  BackendPtr split(const StorePtr& store, const std::vector<int>& ranks,
                   const OptionsPtr& opts) override;
  BackendPtr merge(const StorePtr& store, const OptionsPtr& opts, const int& rank,
                   const int& size) override;
  bool supportsShrinking() const override { return true; }
  BackendPtr shrink(const std::vector<int64_t>& ranks_to_exclude, int flags,
                    const OptionsPtr& opts) override;

  // Refuses a collective that the caller has already found to be wrong. It takes its
  // number, and the others get the reason. Throws.
  [[noreturn]] void refuse_call(const std::string& call, const std::string& why);
  // Takes the number of the next collective; see Group::refuse().
  void leave_out_call(const std::string& why, bool tells);

  // ---- reductions
  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors,
                           const ::c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const ::c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const ::c10d::ReduceOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const ::c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const ::c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs,
      const ::c10d::ReduceScatterOptions& opts) override;
  // With a policy and a priority, for the functions of aikido_torch.
  OwnWork allreduce_with(at::Tensor tensor, const ::c10d::ReduceOp& op,
                         const ReductionExtras& extras, Milliseconds timeout);
  OwnWork reduce_scatter_with(const at::Tensor& output, const Tensors& list,
                              const ::c10d::ReduceOp& op, const ReductionExtras& extras,
                              Milliseconds timeout);
  OwnWork reduce_scatter_tensor_with(const at::Tensor& output, const at::Tensor& input,
                                     const ::c10d::ReduceOp& op,
                                     const ReductionExtras& extras,
                                     Milliseconds timeout);

  // ---- exchanges
  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const ::c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const ::c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const ::c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const ::c10d::GatherOptions& opts) override;
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                             const ::c10d::GatherOptions& opts)
      AIKIDO_OVERRIDE_SINCE_2_15;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const ::c10d::ScatterOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const ::c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const ::c10d::AllToAllOptions& opts) override;

  // ---- barriers and messages
  WorkPtr barrier(const ::c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const ::c10d::BarrierOptions& opts, bool wait_all) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  OwnWork send_with(const at::Tensor& tensor, int to, int tag,
                    std::optional<Priority> priority, Milliseconds timeout);
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // ---- batch: calls of this thread from startCoalescing() to endCoalescing() are one
  // work. If the thread waits for that work in between, later calls are another work.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { calls_.start_batch(); }
  WorkPtr endCoalescing() override { return calls_.end_batch(); }

  // ---- hooks for the end of calls
  void enableCollectivesTiming() override { group_.services->hooks->enable_timing(); }
  void registerOnCompletionHook(CompletionHooks::InfoHook&& hook) override;
  void waitForPendingWorks() override;

  // Operations after this member's last call: committed, or called by another member.
  uint64_t committed_ahead() const { return group_.communicator->committed_ahead(); }
  uint64_t called_ahead() const { return group_.communicator->called_ahead(); }
  const ActiveCommunicator& communicator() const { return group_.communicator; }
  Milliseconds timeout() const { return group_.timeout; }
  const std::string& group_name() const { return group_.name; }
  // Routes of data on devices, for the current members.
  const DeviceRoutes& routes() const { return group_.routes; }
  // For engine/selector.h. All ranks call both at the same point of the program. The
  // first call waits for all ranks.
  void set_hosts(const std::vector<int32_t>& hosts);
  Status set_link(const cost::LinkCost& link, double message_s,
                  const cost::LinkCost& local);
#if AIKIDO_TORCH_SINCE(15)
  bool supportsCompletionHooks() const override {
    return true;
  }
  void registerCompletionHook(int64_t id, ::c10d::CompletionHook hook) override;
  void unregisterCompletionHook(int64_t id) override;
#endif

 private:
  engine::GroupOptions group_options() const;
  void adopt(const membership::Roster& roster, const ActiveCommunicator::Pointer& next);
  BackendPtr child(const StorePtr& store, const std::string& name, int rank, int size,
                   const OptionsPtr& opts);

  GroupContext group_;
  CallPath calls_;
  engine::Selector selector_;
  membership::MemberHandle handle_;
  std::mutex changing_;                // held during a change of members
  std::recursive_timed_mutex ending_;  // held by shutdown(), which its hook may call
  StoreEnd store_end_;                 // set before shutdown()
  EndHooks hooks_;
  GroupState state_;
  ChildGroups children_;
};

}  // namespace aikido::adapter

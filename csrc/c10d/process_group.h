// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The c10d backend: checks arguments, translates, submits, returns work; no logic. One
// object serves cpu and cuda. Methods may be called from any thread, as c10d does.
//
// The calls are in files by kind: reduce_calls, exchange_calls, message_calls,
// barrier_calls, sparse_calls.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/settings.h"
#include "c10d/compat.h"
#include "c10d/finisher.h"
#include "c10d/work.h"
#include "engine/communicator.h"

namespace aikido::adapter {

// What one call may say beyond c10d's own options.
struct AllreduceExtras {
  straggler::PolicyOptions policy;
  Priority priority = 0;
};

class AikidoBackend final : public ::c10d::Backend {
 public:
  struct Config {
    std::string group_name;
    Milliseconds timeout;
    Settings settings;
  };

  // Connects to all members; blocks until config.timeout at most. Throws Error.
  AikidoBackend(std::shared_ptr<engine::Engine> engine,
                std::shared_ptr<Finisher> finisher,
                c10::intrusive_ptr<::c10d::Store> store, int rank, int size,
                Config config);
  const std::string getBackendName() const override { return "aikido"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(Milliseconds timeout) override;
  uint64_t getSequenceNumberForGroup() override { return communicator_->num_calls(); }
  void setSequenceNumberForGroup() override {}
  void abort() override;
  void shutdown() override;

  using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
  using OwnWork = c10::intrusive_ptr<AikidoWork>;
  using Tensors = std::vector<at::Tensor>;

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
  // Allreduce with a policy and a priority: what aikido_torch.all_reduce calls.
  OwnWork allreduce_with(at::Tensor tensor, const ::c10d::ReduceOp& op,
                         const AllreduceExtras& extras, Milliseconds timeout);

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
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // ---- several calls as one work: those of the calling thread between the two
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // ---- hearing of the end of calls
  void enableCollectivesTiming() override { services_.listeners->enable_timing(); }
  void registerOnCompletionHook(Listeners::InfoHook&& hook) override;
  void waitForPendingWorks() override;
#if AIKIDO_TORCH_SINCE(15)
  bool supportsCompletionHooks() const override {
    return true;
  }
  void registerCompletionHook(int64_t id, ::c10d::CompletionHook hook) override;
  void unregisterCompletionHook(int64_t id) override;
#endif

  // Operations committed ahead of this member's next call.
  uint64_t committed_ahead() const {
    return communicator_->committed_ahead();
  }
  engine::Communicator& communicator() {
    return *communicator_;
  }
  Milliseconds timeout() const;

 private:
  // The work of a call: its own, or the batch that this thread has started.
  struct Slot {
    OwnWork work;
    bool is_batch;
  };
  Slot open(::c10d::OpType type, const char* title, const Tensors& inputs,
            AikidoWork::Memory memory);
  OwnWork close(Slot slot);
  // One collective.
  OwnWork submit(collectives::Call call, ::c10d::OpType type, const char* title,
                 collectives::LocalCall local, const Tensors& inputs,
                 AikidoWork::Memory memory, Milliseconds timeout);
  // Whatever `calls` submits, as one work; part of the batch if there is one.
  WorkPtr coalesced(const std::function<void()>& calls);
  OwnWork batch() const;

  WorkPtr gather_all(const char* title, ::c10d::OpType type, const at::Tensor& input,
                     const Tensors& blocks, AikidoWork::Memory memory,
                     Milliseconds timeout);
  WorkPtr gather_to_root(const char* title, const at::Tensor& input,
                         const Tensors& blocks, AikidoWork::Memory memory, int64_t root,
                         Milliseconds timeout);
  WorkPtr exchange_all(::c10d::OpType type, const char* title, const Tensors& inputs,
                       const Tensors& outputs, AikidoWork::Memory memory,
                       Milliseconds timeout);
  WorkPtr scatter_reduced(::c10d::OpType type, const char* title,
                          const ::c10d::ReduceOp& op, const at::Tensor& output,
                          const Tensors& blocks, AikidoWork::Memory memory,
                          Milliseconds timeout);
  WorkPtr receive(Tensors& tensors, std::optional<int> from, int tag);
  void check_process() const;

  std::shared_ptr<engine::Communicator> communicator_;
  AikidoWork::Services services_;
  Milliseconds linger_;
  std::string group_name_;

  mutable std::mutex mutex_;
  Milliseconds timeout_;                                  // guarded by mutex_
  std::unordered_map<std::thread::id, OwnWork> batches_;  // guarded by mutex_
  std::atomic<int> num_batches_ = 0;
};

}  // namespace aikido::adapter

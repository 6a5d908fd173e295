// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The c10d backend: checks arguments, translates, submits, returns work; no logic. One
// object serves cpu and cuda. What aikido does not do itself goes to an inner backend
// (Gloo), counted by name. Methods may be called from any thread, as c10d does.

#include <map>
#include <memory>
#include <mutex>
#include <string>

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
  ~AikidoBackend() override;

  // Takes the calls that aikido does not do itself from now on.
  void set_fallback(c10::intrusive_ptr<::c10d::Backend> fallback);

  const std::string getBackendName() const override { return "aikido"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(Milliseconds timeout) override;
  uint64_t getSequenceNumberForGroup() override { return communicator_->num_calls(); }
  void setSequenceNumberForGroup() override {}
  void abort() override;
  void shutdown() override;

  using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  // ---- our own
  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& opts) override;
  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const ::c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const ::c10d::AllgatherOptions& opts) override;
  WorkPtr barrier(const ::c10d::BarrierOptions& opts) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  // Allreduce with a policy and a priority: what aikido_torch.all_reduce calls.
  c10::intrusive_ptr<AikidoWork> allreduce_with(at::Tensor tensor,
                                                const ::c10d::ReduceOp& op,
                                                const AllreduceExtras& extras,
                                                Milliseconds timeout);

  // ---- the inner backend's
  WorkPtr allreduce_sparse(Tensors& tensors,
                           const ::c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const ::c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const ::c10d::ReduceOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const ::c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const ::c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const ::c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const ::c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const ::c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs,
      const ::c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const ::c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const ::c10d::AllToAllOptions& opts) override;
  void monitoredBarrier(const ::c10d::BarrierOptions& opts, bool wait_all) override;

  // Operations committed ahead of this member's next call.
  uint64_t committed_ahead() const { return communicator_->committed_ahead(); }
  engine::Communicator& communicator() { return *communicator_; }
  // Calls handed to the inner backend, by name.
  std::map<std::string, uint64_t> fallback_calls() const;
  Milliseconds timeout() const;

 private:
  c10::intrusive_ptr<AikidoWork> submit(collectives::Call call, ::c10d::OpType type,
                                        const char* title, collectives::LocalCall local,
                                        const Tensors& inputs,
                                        AikidoWork::Memory memory,
                                        Milliseconds timeout);
  WorkPtr gather_all(const char* name, ::c10d::OpType type, const at::Tensor& input,
                     const Tensors& blocks, AikidoWork::Memory memory,
                     Milliseconds timeout);
  WorkPtr receive(Tensors& tensors, std::optional<int> from, int tag);
  void check_process() const;
  // Counts the call; throws when there is none.
  c10::intrusive_ptr<::c10d::Backend> fallback(const char* name);
  // Null when there is none.
  c10::intrusive_ptr<::c10d::Backend> fallback() const;

  std::shared_ptr<engine::Communicator> communicator_;
  std::shared_ptr<Finisher> finisher_;
  Milliseconds linger_;
  std::string group_name_;

  mutable std::mutex mutex_;
  c10::intrusive_ptr<::c10d::Backend> fallback_;    // guarded by mutex_
  Milliseconds timeout_;                            // guarded by mutex_
  std::map<std::string, uint64_t> fallback_calls_;  // guarded by mutex_
};

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The handle of one call: completes with its outcome or its failure. Dropping it
// neither cancels the call nor frees its tensors early. All methods from any thread.

#include <memory>
#include <optional>

#include "base/status.h"
#include "c10d/compat.h"
#include "c10d/finisher.h"
#include "collectives/outcome.h"

namespace aikido::adapter {

class AikidoWork final : public ::c10d::Work {
 public:
  // `results`: what result() and the future give. `copies`: device tensors and the host
  // tensors that stand in for them; written back before the work completes.
  using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;
  // `held`: whatever else the engine reads or writes.
  struct Memory {
    std::vector<at::Tensor> results;
    Copies copies;
    std::vector<at::Tensor> held;
  };
  AikidoWork(int rank, ::c10d::OpType type, const char* title,
             const std::vector<at::Tensor>& inputs, Memory memory,
             std::shared_ptr<Finisher> finisher);
  ~AikidoWork() override;

  // The end, from the progress thread, which hands its reference over.
  static void complete(c10::intrusive_ptr<AikidoWork> self, const Status& status,
                       const collectives::Outcome& outcome);
  static void complete_message(c10::intrusive_ptr<AikidoWork> self,
                               const Status& status, Rank peer);
  void set_sequence_number(uint64_t seq) { seq_ = seq; }

  // Empty until it has completed; throws what the call failed with.
  std::optional<collectives::Outcome> outcome();

  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return memory_.results; }
  void synchronize() override {}
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  uint64_t getSequencenumber() const override { return seq_; }

 private:
  static void end(c10::intrusive_ptr<AikidoWork> self, const Status& status);
  std::exception_ptr copy_back(const std::exception_ptr& error);
  void mark_futures();

  Memory memory_;
  std::shared_ptr<Finisher> finisher_;
  uint64_t seq_ = 0;
  // Guarded by Work::mutex_.
  collectives::Outcome outcome_;
  Rank source_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10::ivalue::Future> future_result_;
  c10::intrusive_ptr<c10::ivalue::Future> unmarked_;
  c10::intrusive_ptr<c10::ivalue::Future> unmarked_result_;
  ::c10d::WorkResult work_result_ = ::c10d::WorkResult::SUCCESS;
};

// A reference to `work`, and so to its tensors, for the engine to hold.
std::shared_ptr<void> keep_alive(const c10::intrusive_ptr<AikidoWork>& work);

}  // namespace aikido::adapter

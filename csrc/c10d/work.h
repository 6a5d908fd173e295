// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Work of one call, or of several coalesced calls. It completes with their outcome, or
// with the first failure. Dropping it neither cancels a call nor frees its tensors
// early. All methods from any thread.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "base/status.h"
#include "c10d/common/callback_thread.h"
#include "c10d/common/compat.h"
#include "c10d/common/thread_number.h"
#include "c10d/completion_hooks.h"
#include "c10d/work_memory.h"
#include "collectives/outcome.h"
#include "engine/engine.h"
#include "trace/recorder.h"

namespace aikido::adapter {

class AikidoWork final : public ::c10d::Work {
 public:
  using Memory = CallMemory;
  // Objects that a backend shares with all its works.
  struct Services {
    std::shared_ptr<CallbackThread> callback_thread;
    std::shared_ptr<CompletionHooks> hooks;
    // Engine of the calls, and the time for which a waiting thread does not sleep.
    std::weak_ptr<engine::Engine> engine;
    Duration spin{};
    // Number of results of this group that the callback thread must still make. Shared,
    // because its work may outlive the group.
    std::shared_ptr<std::atomic<int>> num_owed = std::make_shared<std::atomic<int>>(0);
    std::shared_ptr<trace::Recorder> recorder = {};
    std::shared_ptr<Transfers> transfers = std::make_shared<Transfers>();
    // Ranks share memory and cores, so a waiting thread does the progress work itself.
    bool is_crowded = false;
  };
  // `title`: "aikido:" and the operation; static storage.
  AikidoWork(int rank, ::c10d::OpType type, const char* title,
             const std::vector<at::Tensor>& inputs,
             std::shared_ptr<const Services> services);
  ~AikidoWork() override;

  TimePoint started() const { return started_; }
  // Adds a call to this work, with its memory. Only on the thread that made the work,
  // before close().
  void open(Memory memory);
  // As open(), for a message that is sent from `tensor` in host memory, or received
  // there.
  void open_message(const at::Tensor& tensor, bool is_received);
  // No further call follows.
  static void close(c10::intrusive_ptr<AikidoWork> self);

  // Makes the work a batch, which takes calls of this thread until end_batch(). It also
  // ends if this thread waits for it or asks for its end, which would never come
  // otherwise. A second call does nothing. isCompleted() does not end it, because
  // torch's flight recorder calls that after every call.
  void begin_batch() { batch_of_ = this_thread_number(); }
  static void end_batch(c10::intrusive_ptr<AikidoWork> self);
  void end_batch_of_this_thread();
  bool is_open_batch() const { return batch_of_ != 0; }
  // `next` takes the further calls of the batch that `work` was. If `work` is still in
  // progress, `next` completes after it, and fails with it.
  static void follow(AikidoWork& work, const c10::intrusive_ptr<AikidoWork>& next);
  // End of one call. Called on the progress thread, which hands over its reference.
  static void complete(c10::intrusive_ptr<AikidoWork> self, const Status& status,
                       const collectives::Outcome& outcome);
  static void complete_message(c10::intrusive_ptr<AikidoWork> self,
                               const Status& status, Rank peer);
  // End of one of Memory::num_parts. Any thread.
  static void complete_part(c10::intrusive_ptr<AikidoWork> self, const Status& status);
  void set_sequence_number(uint64_t seq) { seq_ = seq; }

  // Empty until the work has completed. Throws if the call failed.
  std::optional<collectives::Outcome> outcome();
  // Ranks that a failed call was waiting for.
  std::vector<Rank> missing() const;

  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  // For devices: the copies of the result are done.
  bool isCompleted() override;
  bool isSuccess() const override;
  // Returns when the call has ended on the host. Makes the current streams of its
  // devices wait until the result is there. Also removes the work from torch's registry
  // of works in progress.
  bool wait(std::chrono::milliseconds timeout) override;
  // Only the part for the streams. Requires: the call has ended.
  void synchronize() override;
  // For a thread that would sleep until a future of this work is marked. If ranks share
  // memory and cores, it runs turns of the progress thread instead, as wait() does, and
  // marks the futures. So no other thread is woken. Returns before the end if another
  // thread runs the turns. Never throws. Requires: callbacks of the futures may run
  // here.
  void help_here();
  // True if help_here() has an effect.
  bool may_be_helped_here() const { return services_->is_crowded; }
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  uint64_t getSequencenumber() const override { return seq_; }
  // Milliseconds from the call to the result. Throws if the group was not timing at the
  // call, or if the work is in progress.
  float getDuration() const override;
  uint64_t getCompletionKey() const AIKIDO_OVERRIDE_SINCE_2_15 { return key_; }

 private:
  // Data of most calls, which messages in host memory do not need.
  struct Rest {
    WorkMemory memory;
    // Guarded by Work::mutex_ until the last call ends.
    std::vector<c10::Device> devices;  // devices of the results, without the CPU
    collectives::Outcome outcome;
  };
  struct Futures {
    c10::intrusive_ptr<c10::ivalue::Future> tensors, result;
    // Futures that are not marked yet.
    c10::intrusive_ptr<c10::ivalue::Future> unmarked, unmarked_result;
  };

  // `recorded`: inputs for a profiler. Null: there is none.
  AikidoWork(const std::vector<at::Tensor>* recorded, int rank, ::c10d::OpType type,
             const char* title, std::shared_ptr<const Services> services);

  static void end_one(c10::intrusive_ptr<AikidoWork> self, const Status& status);
  static void end(c10::intrusive_ptr<AikidoWork> self);
  static void end_at_once(c10::intrusive_ptr<AikidoWork> self,
                          const std::exception_ptr& error);
  bool end_here(const std::exception_ptr& error);
  std::exception_ptr finish_rest(std::exception_ptr error);
  Futures& futures();
  void mark_futures();
  void help(TimePoint deadline);

  const char* const title_;  // "aikido:all_reduce"
  const std::shared_ptr<const Services> services_;
  const uint64_t key_;
  const TimePoint started_;
  const bool is_timed_;
  // Written before the last call ends, read after that. A message in host memory uses
  // message_, all other calls use rest_, which is not null then.
  at::Tensor message_;
  std::shared_ptr<Rest> rest_;
  std::atomic<int> num_open_ = 1;       // calls, plus one until close()
  std::atomic<uint64_t> batch_of_ = 0;  // thread whose calls it takes; 0: no batch
  std::atomic<bool> follows_ =
      false;  // set if it follows another work, which may end on any thread
  std::atomic<uint64_t> seq_ = 0;
  std::atomic<Rank> source_{};
  // Set for a timed work, or with an info hook. Final once the work has completed.
  std::optional<TimePoint> finished_;
  // Set soon after Work::completed_, for readers that avoid Work::mutex_.
  std::atomic<bool> is_over_ = false;
  // Guarded by Work::mutex_ until the last call ends.
  Status failure_;
  c10::intrusive_ptr<AikidoWork> next_;
  ::c10d::WorkResult work_result_ = ::c10d::WorkResult::SUCCESS;
  // Null until a future is requested. Guarded by Work::mutex_.
  std::shared_ptr<Futures> futures_;
  std::atomic<bool> has_futures_ = false;
  std::atomic<bool> is_helped_here_ = false;  // by help_here()
};

// Reference to `work`, and so to its tensors, for the engine.
std::shared_ptr<void> keep_alive(const c10::intrusive_ptr<AikidoWork>& work);

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The handle of one call, or of several that were coalesced: completes with their
// outcome or with the first failure. Dropping it neither cancels a call nor frees its
// tensors early. All methods from any thread.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "base/status.h"
#include "c10d/compat.h"
#include "c10d/finisher.h"
#include "c10d/listeners.h"
#include "c10d/staging.h"
#include "collectives/outcome.h"
#include "engine/engine.h"
#include "trace/recorder.h"

namespace aikido::adapter {

class AikidoWork final : public ::c10d::Work {
 public:
  // `results`: what result() and the future give. `staged`: of its copies those that
  // are written back before the work completes, on a device by then queued. `held`:
  // whatever else the engine reads or writes. `finish`: what is left to do on the host
  // when the bytes are there; runs on the finisher's thread.
  struct Memory {
    std::vector<at::Tensor> results;
    Staged staged;
    std::vector<at::Tensor> held;
    std::function<void()> finish = {};
    // On whose stream for copies up `finish` queues what makes the results.
    std::optional<c10::Device> lands_on = {};
    // Lives as long as `held`.
    std::shared_ptr<void> owner = {};
    int num_parts = 0;  // beside the call itself, each of which complete_part() ends
  };
  // What a backend gives all its works.
  struct Services {
    std::shared_ptr<Finisher> finisher;
    std::shared_ptr<Listeners> listeners;
    // Where the calls are under way, and for how long who waits for one does not sleep.
    std::weak_ptr<engine::Engine> engine;
    Duration spin{};
    // Results of this group that the finisher has still to make. Shared: its work may
    // outlive the group.
    std::shared_ptr<std::atomic<int>> num_owed = std::make_shared<std::atomic<int>>(0);
    std::shared_ptr<trace::Recorder> recorder = {};
    std::shared_ptr<Transfers> transfers = std::make_shared<Transfers>();
    // Ranks share memory and cores: who waits does the work himself.
    bool is_crowded = false;
  };
  // `title`: "aikido:" and the operation, of static life.
  AikidoWork(int rank, ::c10d::OpType type, const char* title,
             const std::vector<at::Tensor>& inputs,
             std::shared_ptr<const Services> services);
  ~AikidoWork() override;

  TimePoint started() const { return started_; }
  // Another call of this work, with its memory. Only by the thread that made the work,
  // before close().
  void open(Memory memory);
  // The same for a message that is sent from `tensor`, in host memory, or received
  // there.
  void open_message(const at::Tensor& tensor, bool is_received);
  // No further call comes.
  static void close(c10::intrusive_ptr<AikidoWork> self);

  // Makes it a batch: it takes calls of this thread until end_batch(), or until this
  // thread waits for it or asks for its end, which would never come otherwise. The
  // second time nothing. Not by isCompleted(): torch's flight recorder asks it after
  // every call.
  void begin_batch() { batch_of_ = this_thread_number(); }
  static void end_batch(c10::intrusive_ptr<AikidoWork> self);
  void end_batch_of_this_thread();
  bool is_open_batch() const { return batch_of_ != 0; }
  // `next` takes the further calls of the batch that `work` was: if that is still under
  // way, `next` completes after it, and fails with it.
  static void follow(AikidoWork& work, const c10::intrusive_ptr<AikidoWork>& next);
  // Never used again, unlike the ids of threads.
  static uint64_t this_thread_number();
  // The end of one call, from the progress thread, which hands its reference over.
  static void complete(c10::intrusive_ptr<AikidoWork> self, const Status& status,
                       const collectives::Outcome& outcome);
  static void complete_message(c10::intrusive_ptr<AikidoWork> self,
                               const Status& status, Rank peer);
  // The end of one of Memory::num_parts; any thread.
  static void complete_part(c10::intrusive_ptr<AikidoWork> self, const Status& status);
  void set_sequence_number(uint64_t seq) { seq_ = seq; }

  // Empty until it has completed; throws what the call failed with.
  std::optional<collectives::Outcome> outcome();
  // Whom a failed call was waiting for.
  std::vector<Rank> missing() const;

  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  // On devices: the copies of the result are through.
  bool isCompleted() override;
  bool isSuccess() const override;
  // Returns when the call has ended on the host, and holds up the current streams of
  // its devices until the result is there. Also takes the work out of torch's registry
  // of works under way.
  bool wait(std::chrono::milliseconds timeout) override;
  // The second of these alone. Requires: the call has ended.
  void synchronize() override;
  // For a thread that is about to sleep until a future of this work is marked. Where
  // ranks share memory and cores it runs turns of the progress thread instead, as
  // wait() does, and marks the futures, so that no other thread is woken. Returns
  // before the end if another thread runs the turns. Never throws. Requires: callbacks
  // of the futures may run here.
  void help_here();
  // Whether help_here() does anything.
  bool may_be_helped_here() const { return services_->is_crowded; }
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  uint64_t getSequencenumber() const override { return seq_; }
  // Milliseconds from the call to the result. Throws for work of a group that was not
  // timing when it was made, and for work under way.
  float getDuration() const override;
  uint64_t getCompletionKey() const AIKIDO_OVERRIDE_SINCE_2_15 { return key_; }

 private:
  // What most calls have and messages in host memory have not.
  struct Rest {
    std::vector<at::Tensor> results;
    std::vector<at::Tensor> held;
    std::vector<std::shared_ptr<void>> owners;
    std::vector<Copy> copies;
    std::vector<std::function<void()>> finishes;
    std::vector<c10::Device> lands_on;  // beside those of copies
    std::vector<Mark> landed;           // when the results are on their devices
    // Guarded by Work::mutex_ until the last call ends.
    std::vector<c10::Device> devices;  // of the results, without the CPU
    collectives::Outcome outcome;
  };
  struct Futures {
    c10::intrusive_ptr<c10::ivalue::Future> tensors, result;
    // Those of them that are still to be marked.
    c10::intrusive_ptr<c10::ivalue::Future> unmarked, unmarked_result;
  };

  // `recorded`: the inputs, for a profiler; null where there is none.
  AikidoWork(const std::vector<at::Tensor>* recorded, int rank, ::c10d::OpType type,
             const char* title, std::shared_ptr<const Services> services);

  static void end_one(c10::intrusive_ptr<AikidoWork> self, const Status& status);
  static void end(c10::intrusive_ptr<AikidoWork> self);
  static void end_at_once(c10::intrusive_ptr<AikidoWork> self,
                          const std::exception_ptr& error);
  bool end_here(const std::exception_ptr& error);
  std::exception_ptr finish_on_host();
  void write_back(const Copy& copy);
  std::exception_ptr mark_results(std::exception_ptr error);
  Futures& futures();
  void mark_futures();
  void help(TimePoint deadline);

  const char* const title_;  // "aikido:all_reduce"
  const std::shared_ptr<const Services> services_;
  const uint64_t key_;
  const TimePoint started_;
  const bool is_timed_;
  // Changed before the last call ends, read after that: of a message in host memory its
  // tensor, else all that is in `rest_`, which is there then.
  at::Tensor message_;
  std::shared_ptr<Rest> rest_;
  std::atomic<bool> has_landed_ = false;  // rest_->landed is final
  std::atomic<int> num_open_ = 1;         // calls, and one more until close()
  std::atomic<uint64_t> batch_of_ = 0;    // the thread whose calls it takes; 0: none
  std::atomic<bool> follows_ = false;     // another work, which may end on any thread
  std::atomic<uint64_t> seq_ = 0;
  std::atomic<Rank> source_{};
  // Of one that is timed, or that an info hook hears of; final once it has completed.
  std::optional<TimePoint> finished_;
  // Set soon after Work::completed_: for who can do without Work::mutex_ then.
  std::atomic<bool> is_over_ = false;
  // Guarded by Work::mutex_ until the last call ends.
  Status failure_;
  c10::intrusive_ptr<AikidoWork> next_;
  ::c10d::WorkResult work_result_ = ::c10d::WorkResult::SUCCESS;
  // Null until somebody asks for one. Guarded by Work::mutex_.
  std::shared_ptr<Futures> futures_;
  std::atomic<bool> has_futures_ = false;
  std::atomic<bool> is_helped_here_ = false;  // by help_here()
};

// A reference to `work`, and so to its tensors, for the engine to hold.
std::shared_ptr<void> keep_alive(const c10::intrusive_ptr<AikidoWork>& work);

}  // namespace aikido::adapter

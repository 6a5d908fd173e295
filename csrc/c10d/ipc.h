// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Strict allreduces of tensors on one device that the processes of all ranks share: in
// its memory, without a copy to the host. Python decides with all ranks whether a group
// does so (aikido_torch/_ipc.py).
//
// Note [an allreduce in shared memory of a device]
// Rank 0 leads. Each rank says at the call, as a call of the group that has its number,
// its span and its time-out, where its tensor lies, and is held until its stream has
// come there. When all have, rank 0 queues one kernel that adds up all tensors where
// they lie and writes the result to all; once that is through, it tells the others in
// a message, its verdict. What fails there, fails everywhere with its sentence. So no
// stream of one process ever waits for another process, and whatever dies is noticed as
// in all other calls; a mapping outlives the process that has given the memory.
//
// A rank whose call fails, as it has timed out or given the group up, does not know
// whether rank 0 still writes to its tensor. It keeps that until the verdict comes,
// which rank 0 sends whenever its call ends, or for kGrace. Rank 0 begins nothing after
// the time-out of any rank. Where its kernel does not end, all keep their tensors for
// good.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "c10d/compat.h"
#include "c10d/device_memory.h"
#include "c10d/finisher.h"
#include "c10d/inner.h"
#include "c10d/transfers.h"
#include "c10d/work.h"
#include "collectives/call.h"
#include "engine/communicator.h"

namespace aikido::adapter {

// Of the present members of a group. All methods from any thread.
class Ipc {
 public:
  using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;
  // Whether all ranks of `outer` share `device` of this rank, and can. All ranks ask at
  // one place between their calls, and get the same answer within `limit`, or an error.
  using Finder = std::function<bool(const BackendPtr& outer, const std::string& setting,
                                    c10::Device device, Milliseconds limit)>;
  // Of the process, before its first group.
  static void set_finder(Finder finder);

  // `setting`: devices.ipc.
  explicit Ipc(std::string setting) : setting_(std::move(setting)) {}

  // Tensors are never shared, and nobody needs to be asked.
  bool is_off() const { return setting_ == "off"; }
  // The answer of the finder, which is asked until it has given one. Not from the
  // progress thread.
  bool find(const BackendPtr& outer, c10::Device device, Milliseconds limit);
  // Requires: found.
  c10::Device device() const;
  // The stream for kernels, and the thread that sees them end: apart from those of
  // tensors that are staged.
  const std::shared_ptr<Transfers>& transfers() const { return transfers_; }

  // Another call, which is over here when the last copy of what is returned is gone.
  std::shared_ptr<void> begin();
  // Blocks until all are over, `limit` at most.
  void wait_for_calls(Duration limit);
  uint64_t num_calls() const { return open_->num_calls; }

 private:
  struct Open {
    std::mutex mutex;
    std::condition_variable over;
    int num = 0;  // guarded by mutex
    std::atomic<uint64_t> num_calls = 0;
  };
  const std::string setting_;
  const std::shared_ptr<Transfers> transfers_ = std::make_shared<Transfers>();
  const std::shared_ptr<Open> open_ = std::make_shared<Open>();  // calls outlive this
  std::mutex finding_;  // held while the finder is asked
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool is_found_ = false, is_shared_ = false;
  c10::Device device_ = c10::kCPU;
};

// One call at one rank, which its work owns, beside the tensor. The thread of the call
// makes it; then the progress thread, the finisher's, and on rank 0 that of Transfers.
class IpcCall : public std::enable_shared_from_this<IpcCall> {
 public:
  static constexpr int kLeader = 0;
  // From a failure to the moment when rank 0 has surely heard of it; and what the
  // others wait longer than the time-out.
  static constexpr Milliseconds kGrace{30'000};

  struct What {
    collectives::Call call;
    int rank = 0, size = 0;
    TimePoint deadline{};
    Priority priority = 0;
    // Has a part for the end of this, and owns it. Both hold each other until then.
    c10::intrusive_ptr<AikidoWork> work;
    std::shared_ptr<void> token;  // of Ipc::begin()
    // Results that are still to be made, as of AikidoWork.
    std::shared_ptr<std::atomic<int>> owed;
  };
  using CommunicatorPtr = std::shared_ptr<engine::Communicator>;

  // Of `tensor`, which is contiguous and on a device; `handle`: its own, but of rank 0.
  IpcCall(What what, const at::Tensor& tensor, const DeviceMemory::Handle& handle,
          std::shared_ptr<Transfers> transfers);

  bool leads() const { return what_.rank == kLeader; }
  void add_blocks(collectives::LocalCall& local);
  // The call of the group, its `seq`-th, is over: all have called, or `status` says why
  // not. Progress thread.
  void on_called(const Status& status, Seq seq);
  // Goes on after that, by `communicator`, null if the group is gone. Finisher's
  // thread.
  void go_on(const Status& status, CommunicatorPtr communicator);

  // Lets go of the tensors that failed calls have kept for long enough. Not on the
  // progress thread.
  static void purge();

 private:
  // What a rank tells the leader.
  struct Offer {
    DeviceMemory::Handle handle;
    int64_t deadline = 0;  // of its call, on the clock of the host
  };
  // What the leader tells the others.
  struct Verdict {
    int32_t culprit = kNoRank.value;
    Code code = Code::kOk;
    bool is_running = false;  // it has failed, and its kernel may go on
    char text[504] = {};      // cut where it is longer
  };
  int32_t tag() const;
  Mark queue();
  void lead(const Status& status);
  void conclude(const Status& status);
  void on_verdict_sent(const Status& status);
  void receive(const Status& status, const CommunicatorPtr& communicator);
  void end_receive(const Status& status);
  void end(const Status& status);
  void finish(const Status& status);

  What what_;
  const std::shared_ptr<Transfers> transfers_;
  const std::shared_ptr<DeviceMemory> device_memory_;
  const CopySite site_;
  void* const data_;
  std::vector<Offer> offers_;  // of all ranks on a leader; elsewhere the own one
  Verdict verdict_;
  Seq seq_{};
  bool is_owed_ = false;
  bool is_over_ = false;  // for the work
  // Of a leader.
  CommunicatorPtr communicator_;
  TimePoint first_deadline_{};  // of all ranks
  int num_unsent_ = 0;          // verdicts
};

// The site of all of them, for what fails.
CopySite ipc_site(int rank, const at::Tensor& tensor);

}  // namespace aikido::adapter

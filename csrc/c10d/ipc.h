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
// A rank whose call fails before the verdict does not know whether rank 0 still writes
// to its tensor. It keeps that until the verdict comes, or until kGrace after the
// time-out of the call, after which rank 0 begins nothing.

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
  // Until then `owed` is one more, as of AikidoWork.
  std::shared_ptr<void> begin(const std::shared_ptr<std::atomic<int>>& owed);
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
// makes it; then the progress thread, on rank 0 the finisher's, and that of Transfers.
class IpcCall : public std::enable_shared_from_this<IpcCall> {
 public:
  static constexpr int kLeader = 0;
  // What the others wait longer than rank 0.
  static constexpr Milliseconds kGrace{30'000};

  struct What {
    collectives::Call call;
    int rank = 0, size = 0;
    TimePoint deadline{};
    Priority priority = 0;
    // Open for the end of this, and owns it. Both hold each other until then.
    c10::intrusive_ptr<AikidoWork> work;
    std::shared_ptr<void> token;  // of Ipc::begin()
  };
  // Shares `tensor`, which is contiguous and on a device. Throws.
  IpcCall(What what, const at::Tensor& tensor, std::shared_ptr<Transfers> transfers);

  bool leads() const { return what_.rank == kLeader; }
  const CopySite& site() const { return site_; }
  void add_blocks(collectives::LocalCall& local);

  // ---- of rank 0
  // All have called, or `status` says why not: ends the call everywhere, by
  // `communicator`, null if the group is gone. On the finisher's thread.
  void lead(const Status& status, std::shared_ptr<engine::Communicator> communicator);

  // ---- of the others
  // For the verdict.
  collectives::ReceiveCall receive();
  // The verdict is of no use any more: the call has failed. Progress thread.
  void give_up();

 private:
  // What a rank tells the leader.
  struct Offer {
    DeviceMemory::Handle handle;
    int32_t tag;  // of the message that it waits for
  };
  // What the leader tells the others.
  struct Verdict {
    Code code = Code::kOk;
    char text[511] = {};  // cut where it is longer
  };
  void reduce();
  void conclude(const Status& status);
  void end_receive(const Status& status);
  static Status own_status(const Verdict& verdict);
  void end(const c10::intrusive_ptr<AikidoWork>& work, const Status& status);

  What what_;
  const std::shared_ptr<Transfers> transfers_;
  const std::shared_ptr<DeviceMemory> device_memory_;
  const CopySite site_;
  void* const data_;
  std::vector<Offer> offers_;  // of all ranks on a leader; elsewhere the own one
  Verdict verdict_;
  bool is_over_ = false;                                // for the work
  std::shared_ptr<engine::Communicator> communicator_;  // of a leader
};

}  // namespace aikido::adapter

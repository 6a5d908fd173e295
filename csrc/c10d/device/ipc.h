// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Strict allreduces of tensors on one device that the processes of all ranks share, in
// the memory of that device, without a copy to the host. Python decides with all ranks
// if a group does this (aikido_torch/_ipc.py).
//
// Note [allreduce in shared device memory]
// Rank 0 leads. Each rank announces the place of its tensor, as a call of the group
// with a number, a span and a time-out. The call is held until the rank's stream has
// reached it. When all have called, rank 0 queues one kernel, which adds up all tensors
// in place and writes the result to all of them. When the kernel is done, rank 0 sends
// a message, its end message, to the others. A failure is reported to all ranks with
// its reason. So no stream of one process ever waits for another process, and a dying
// process is noticed as in all other calls. A mapping outlives the process that shared
// the memory.
//
// If a call fails on a rank, for example by its time-out, that rank does not know if
// rank 0 still writes to its tensor. So it keeps the tensor until the end message
// comes, or for kGrace. Rank 0 sends an end message at the end of each call. It begins
// nothing after the time-out of any rank. If its kernel does not end, all ranks keep
// their tensors for good.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "c10d/common/callback_thread.h"
#include "c10d/common/compat.h"
#include "c10d/common/device_memory.h"
#include "c10d/device/nccl_route.h"
#include "c10d/device/transfers.h"
#include "c10d/work.h"
#include "collectives/call.h"
#include "engine/communicator.h"

namespace aikido::adapter {

// State for the present members of a group. All methods from any thread.
class Ipc {
 public:
  using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;
  // Returns true if all ranks of `outer` share `device` of this rank and support this.
  // All ranks call it at the same point between their calls. Within `limit` they get
  // the same answer, or an error.
  using Finder = std::function<bool(const BackendPtr& outer, const std::string& setting,
                                    c10::Device device, Milliseconds limit)>;
  // Sets the finder of the process. Call it before the first group is made.
  static void set_finder(Finder finder);

  // `setting`: devices.ipc.
  explicit Ipc(std::string setting) : setting_(std::move(setting)) {}

  // Tensors are never shared, and the finder is never called.
  bool is_off() const { return setting_ == "off"; }
  // Answer of the finder, which is called until it has answered once. Not from the
  // progress thread.
  bool find(const BackendPtr& outer, c10::Device device, Milliseconds limit);
  // Requires: found.
  c10::Device device() const;
  // Stream for kernels, and the thread that waits for them. Separate from those of
  // staged tensors.
  const std::shared_ptr<Transfers>& transfers() const { return transfers_; }

  // Token of a new call. The call has ended on this rank when the last copy of the
  // token is destroyed.
  std::shared_ptr<void> begin();
  // Blocks until all calls have ended, for at most `limit`.
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
  const std::shared_ptr<Open> open_ =
      std::make_shared<Open>();  // shared, because calls outlive this object
  std::mutex finding_;           // held while the finder is asked
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool is_found_ = false, is_shared_ = false;
  c10::Device device_ = c10::kCPU;
};

// One call at one rank, owned by its work, with the tensor. Made on the calling thread.
// Then used on the progress thread, the callback thread and, on rank 0, the thread of
// Transfers.
class IpcCall : public std::enable_shared_from_this<IpcCall> {
 public:
  static constexpr int kLeader = 0;
  // Upper limit of the time from a failure until rank 0 knows of it. The other ranks
  // wait for the time-out plus this time.
  static constexpr Milliseconds kGrace{30'000};

  struct What {
    collectives::Call call;
    int rank = 0, size = 0;
    TimePoint deadline{};
    Priority priority = 0;
    // Work that owns this call, with a part for its end. Both hold each other until
    // then.
    c10::intrusive_ptr<AikidoWork> work;
    std::shared_ptr<void> token;  // of Ipc::begin()
    // Number of results that are still to be made; see AikidoWork.
    std::shared_ptr<std::atomic<int>> owed;
  };
  using CommunicatorPtr = std::shared_ptr<engine::Communicator>;

  // `tensor` is contiguous and on a device. `handle`: of the own tensor; unused on rank
  // 0.
  IpcCall(What what, const at::Tensor& tensor, const DeviceMemory::IpcHandle& handle,
          std::shared_ptr<Transfers> transfers);

  bool leads() const { return what_.rank == kLeader; }
  void add_blocks(collectives::LocalCall& local);
  // The comparison of calls with number `seq` has ended: all ranks have called, or
  // `status` is the reason of the failure. Progress thread.
  void on_called(const Status& status, Seq seq);
  // Continues after on_called(), with `communicator`; null if the group is gone.
  // Callback thread.
  void go_on(const Status& status, CommunicatorPtr communicator);

  // Releases the tensors of failed calls that were kept long enough. Not on the
  // progress thread.
  static void purge();

 private:
  // Message of a rank to the leader.
  struct Offer {
    DeviceMemory::IpcHandle handle;
    int64_t deadline = 0;  // deadline of its call, on the clock of the host
  };
  // Message of the leader to the others.
  struct EndMessage {
    int32_t culprit = kNoRank.value;
    Code code = Code::kOk;
    bool is_running = false;  // the call has failed, but its kernel may still run
    char text[504] = {};      // cut if it is longer
  };
  int32_t tag() const;
  Mark queue();
  void lead(const Status& status);
  void conclude(const Status& status);
  void on_end_message_sent(const Status& status);
  void receive(const Status& status, const CommunicatorPtr& communicator);
  void end_receive(const Status& status);
  void end(const Status& status);
  void finish(const Status& status);

  What what_;
  const std::shared_ptr<Transfers> transfers_;
  const std::shared_ptr<DeviceMemory> device_memory_;
  const CopySite site_;
  void* const data_;
  std::vector<Offer> offers_;  // of all ranks on the leader, else only of this rank
  EndMessage end_message_;
  Seq seq_{};
  bool is_owed_ = false;
  bool is_over_ = false;  // for the work
  // On the leader only.
  CommunicatorPtr communicator_;
  TimePoint first_deadline_{};  // earliest deadline of all ranks
  int num_unsent_ = 0;          // end messages not sent yet
};

// Description of all its copies, for errors.
CopySite ipc_site(int rank, const at::Tensor& tensor);

}  // namespace aikido::adapter

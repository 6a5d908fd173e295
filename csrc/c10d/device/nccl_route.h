// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Inner backend of a group for strict collectives of tensors on devices: NCCL, if each
// rank has a GPU of its own. Without it, tensors are staged (staging.h), as those of
// all other calls. Python decides with all ranks and makes the inner backend
// (aikido_torch/_inner.py). So this code does not link with NCCL.
//
// Note [a call by the inner backend]
// The call is queued in the inner backend at once, behind the caller's stream. In
// parallel it is announced to the other members, as a call of this group without data
// (collectives/call.h). So it has a number and a span, its time-out names the missing
// ranks, and different or staged calls are reported. When all have called, the stream
// for copies up waits for the result, as if it had been copied. If some rank does not
// call, the queued work would never end. Then this group aborts the inner backend (it
// gives the backend up), and refuses later calls that would use it.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "c10d/common/callback_thread.h"
#include "c10d/common/compat.h"
#include "c10d/device/transfers.h"
#include "collectives/call.h"

namespace aikido::adapter {

// All methods from any thread, unless said otherwise.
class NcclRoute {
 public:
  using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;
  using StorePtr = c10::intrusive_ptr<::c10d::Store>;
  // Returns the backend for calls of `outer` with tensors on `device` of this rank.
  // Null: they are staged. All ranks call it at the same point between their calls.
  // Within `limit` they get the same answer, or an error. `setting`: "auto" or "on".
  // `store`: shared by the ranks; null: none.
  using Finder = std::function<BackendPtr(
      const BackendPtr& outer, const std::string& setting, c10::Device device,
      const StorePtr& store, Milliseconds limit)>;
  // Sets the finder of the process. Call it before the first group is made.
  static void set_finder(Finder finder);

  // `setting`: devices.nccl.
  NcclRoute(std::string setting, std::shared_ptr<CallbackThread> callback_thread)
      : setting_(std::move(setting)), callback_thread_(std::move(callback_thread)) {}

  // True if the inner backend is switched off: it is never used, and the finder is
  // never called.
  bool is_off() const { return setting_ == "off"; }

  // The answer of the finder. The finder is called until it has returned an answer
  // once. `timeout`: of calls of this group; it ends before that of the inner backend.
  // Not from the progress thread.
  BackendPtr find(const BackendPtr& outer, c10::Device device, const StorePtr& store,
                  Milliseconds limit, Milliseconds timeout);
  // Requires: found.
  c10::Device device() const;
  void set_timeout(Milliseconds timeout);
  // Reason why the backend was given up.
  Status failure() const;
  // Runs a part of a call. If it throws, the backend is given up.
  void run(const CopySite& site, const std::function<void()>& part);

  // Gives the backend up, which ends its calls in progress. `self` is released with
  // that, which may take long when it is the last reference. Does not block.
  static void fail(std::shared_ptr<NcclRoute> self, const Status& why);
  // As fail(), but waits for the end.
  void abort(const Status& why);
  // Call it when the calls in progress have ended.
  void shutdown();

  void on_called() { ++num_calls_; }
  uint64_t num_calls() const { return num_calls_; }

 private:
  bool give_up(const Status& why);

  const std::string setting_;
  const std::shared_ptr<CallbackThread> callback_thread_;
  std::atomic<uint64_t> num_calls_ = 0;
  std::mutex finding_;  // held while the finder is asked
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool is_found_ = false;
  BackendPtr backend_;
  c10::Device device_ = c10::kCPU;
  Status failure_;
};

// True if the inner backend supports such a call. Depends only on values that members
// compare, so all ranks decide alike.
bool nccl_takes(const collectives::Call& call, at::ScalarType dtype);

// Contiguous stand-ins on the device for the tensors of one call, with the values that
// the tensors show. A plain tensor stands for itself.
class NcclTensors {
 public:
  at::Tensor in(const at::Tensor& tensor);
  // As in(), but separate from the call's own `outputs`; see apart().
  at::Tensor in(const at::Tensor& tensor, const std::vector<at::Tensor>& outputs,
                size_t own);
  at::Tensor out(const at::Tensor& tensor);
  at::Tensor in_out(const at::Tensor& tensor);
  // As in(), but always a copy, which replaces the last result of in_out().
  at::Tensor copy_of(const at::Tensor& tensor);
  // All tensors that the inner backend reads or writes.
  const std::vector<at::Tensor>& all() const { return all_; }
  // Copies results back, on the current stream, which then keeps the memory.
  void write_back() const;
  // True if a stand-in is not the given tensor itself.
  bool has_copies() const { return !copies_.empty(); }

 private:
  std::vector<at::Tensor> all_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // from, to
};

// Description of a call by the inner backend.
struct NcclCall {
  collectives::Call call;
  ::c10d::OpType type;
  const char* title;                      // as of AikidoWork
  const std::vector<at::Tensor>& inputs;  // for the profiler
  std::vector<at::Tensor> results;
  Milliseconds timeout;
};
// Makes the call in the inner backend, with stand-ins from its argument, and returns
// the work.
using NcclLaunch = std::function<c10::intrusive_ptr<::c10d::Work>(NcclTensors&)>;

}  // namespace aikido::adapter

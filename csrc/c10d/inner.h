// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The backend inside a group by which strict collectives of tensors on devices go:
// NCCL, where each rank has a GPU of its own. Where there is none, tensors are staged
// (staging.h), as those of all other calls are. Python decides with all ranks and makes
// it (aikido_torch/_inner.py), so nothing here links with NCCL.
//
// Note [a call by the inner backend]
// It is queued there at once, behind the caller's stream, and tells the other members
// beside that, as a call of this group without data (collectives/call.h): so it has its
// number and its span, its time-out names who is missing, and members in different
// calls, or of which one is staged, are told so. When all have called, the stream for
// copies up waits for its result, as if that had been copied. Where they have not, what
// is queued there would never end: the inner backend is given up, and calls that would
// go by it are refused from then on.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "c10d/compat.h"
#include "c10d/finisher.h"
#include "c10d/transfers.h"
#include "collectives/call.h"

namespace aikido::adapter {

// All methods from any thread, unless said otherwise.
class Inner {
 public:
  using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;
  using StorePtr = c10::intrusive_ptr<::c10d::Store>;
  // What a call of `outer` with tensors on `device` of this rank goes by; null: it is
  // staged. All ranks ask at one place between their calls, and get the same answer
  // within `limit`, or an error. `setting`: "auto" or "on". `store`: which they share,
  // null for none.
  using Finder = std::function<BackendPtr(
      const BackendPtr& outer, const std::string& setting, c10::Device device,
      const StorePtr& store, Milliseconds limit)>;
  // Of the process, before its first group.
  static void set_finder(Finder finder);

  // `setting`: devices.nccl.
  Inner(std::string setting, std::shared_ptr<Finisher> finisher)
      : setting_(std::move(setting)), finisher_(std::move(finisher)) {}

  // Nothing goes there, and nobody needs to be asked.
  bool is_off() const { return setting_ == "off"; }

  // The answer of the finder, which is asked until it has given one. `timeout`: of
  // calls here, which end before theirs. Not from the progress thread.
  BackendPtr find(const BackendPtr& outer, c10::Device device, const StorePtr& store,
                  Milliseconds limit, Milliseconds timeout);
  // Requires: found.
  c10::Device device() const;
  void set_timeout(Milliseconds timeout);
  // Why it was given up.
  Status failure() const;
  // Runs a part of a call; what it throws, gives up the backend.
  void run(const CopySite& site, const std::function<void()>& part);

  // Gives it up: what is under way there ends. `self` goes with that: the last of it
  // may take long. Does not block.
  static void fail(std::shared_ptr<Inner> self, const Status& why);
  // The same, and waits for that.
  void abort(const Status& why);
  // When what is under way has ended.
  void shutdown();

  void on_called() { ++num_calls_; }
  uint64_t num_calls() const { return num_calls_; }

 private:
  bool give_up(const Status& why);

  const std::string setting_;
  const std::shared_ptr<Finisher> finisher_;
  std::atomic<uint64_t> num_calls_ = 0;
  std::mutex finding_;  // held while the finder is asked
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool is_found_ = false;
  BackendPtr backend_;
  c10::Device device_ = c10::kCPU;
  Status failure_;
};

// Whether calls like this go there, by what members compare alone.
bool inner_takes(const collectives::Call& call, at::ScalarType dtype);

// Contiguous tensors on the device, of the values that they show, which stand for those
// of one call; plain ones stand for themselves.
class InnerTensors {
 public:
  at::Tensor in(const at::Tensor& tensor);
  // The same beside `outputs` of its own, as apart().
  at::Tensor in(const at::Tensor& tensor, const std::vector<at::Tensor>& outputs,
                size_t own);
  at::Tensor out(const at::Tensor& tensor);
  at::Tensor in_out(const at::Tensor& tensor);
  // As that, but not the tensor itself: it is in the place of what in_out() gave last.
  at::Tensor copy_of(const at::Tensor& tensor);
  // All that the inner backend reads and writes.
  const std::vector<at::Tensor>& all() const { return all_; }
  // On the current stream, which stays with the memory.
  void write_back() const;
  // Some of them are not what was given.
  bool has_copies() const { return !copies_.empty(); }

 private:
  std::vector<at::Tensor> all_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // from, to
};

// What becomes a call by it.
struct InnerCall {
  collectives::Call call;
  ::c10d::OpType type;
  const char* title;                      // as of AikidoWork
  const std::vector<at::Tensor>& inputs;  // for the profiler
  std::vector<at::Tensor> results;
  Milliseconds timeout;
};
// Makes the call there, with tensors that it takes from there, and returns its work.
using InnerLaunch = std::function<c10::intrusive_ptr<::c10d::Work>(InnerTensors&)>;

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Contiguous host tensors that stand in for the tensors of one call. Stand-ins are made
// for tensors on devices, for tensors with gaps between elements, and for conjugate and
// negative views, whose memory holds other values than they show. Other contiguous CPU
// tensors stand for themselves. A tensor that shares memory until it is written gets
// its own memory here, so that all pointers to it agree.
//
// Note [copies of a call]
// The stand-in of a tensor on a device is in pinned memory. The copy down is queued on
// a separate stream, behind the caller's stream, and the call returns. The call is held
// (engine/communicator.h) until the copy is done. The copy up is queued when the result
// is complete, behind the work that was pending on the caller's stream at the call. A
// large strict allreduce goes in parts: it begins with the first part, and each part of
// the result is copied up while others are in progress.

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "c10d/common/blocks.h"
#include "c10d/common/callback_thread.h"
#include "c10d/common/tensor_check.h"
#include "c10d/device/transfers.h"
#include "collectives/parts.h"
#include "collectives/shard_plan.h"

namespace aikido::adapter {

// Copy up of a result that arrives in parts. Any thread.
class ResultParts : public std::enable_shared_from_this<ResultParts> {
 public:
  ResultParts(at::Tensor host, at::Tensor tensor, CopySite site,
              std::shared_ptr<Transfers> transfers,
              std::shared_ptr<CallbackThread> callback_thread);
  // These bytes are complete. Called on the progress thread, which must not release the
  // last reference.
  void add(size_t begin, size_t end);
  // Queues the copies of all complete parts. If it throws, each later call throws too.
  void flush();
  // The call has failed, so nothing more is copied.
  void drop();

 private:
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  const at::Tensor host_, tensor_;
  const CopySite site_;
  const std::shared_ptr<Transfers> transfers_;
  const std::shared_ptr<CallbackThread> callback_thread_;
  std::mutex flushing_;  // held while copies are queued
  // Guarded by flushing_.
  bool is_dropped_ = false;
  std::exception_ptr error_;
  std::mutex mutex_;
  // Guarded by mutex_.
  Ranges ranges_;
  size_t num_bytes_ = 0;  // sum of ranges_
  bool is_flush_due_ = false;
};

// A copy back that is made before a work completes.
struct Copy {
  at::Tensor tensor;
  at::Tensor host;
  std::shared_ptr<const Mark>
      pending;  // pending work of the caller's stream; null: none
  std::shared_ptr<ResultParts> parts;  // null: copied as a whole
};

// A copy to the host that is in progress.
struct CopyDown {
  std::vector<Mark> marks;  // the copy is done when these are passed
  CopySite site;
  size_t ready = 0;  // with parts: bytes of each shard that are complete then
};

// Block of a rank for itself that is not complete yet.
struct OwnCopy {
  OutBlock from;
  InBlock to;
  std::vector<at::Tensor> held;  // keeps the memory of both
};

// All work of a call with devices and other memory.
struct Staged {
  std::vector<Copy> copies;
  std::vector<CopyDown> downs;  // in order; the call starts after the first
  std::vector<at::Tensor>
      sources;  // keeps sources of copies alive that are not in `copies`
  std::function<void(size_t, size_t)> on_result = {};  // with parts only
  std::vector<OwnCopy> own_copies = {};
};

class Staging {
 public:
  // Both must outlive this object.
  Staging(const CallSite& site, const std::shared_ptr<Transfers>& transfers)
      : site_(site), transfers_(transfers) {}

  // Stand-ins for tensors that are read, written, or both. All throw, also if a stream
  // records a graph.
  at::Tensor in(const at::Tensor& tensor);
  at::Tensor out(const at::Tensor& tensor);
  at::Tensor in_out(const at::Tensor& tensor);
  // As in_out(), for an allreduce that goes shard by shard: in parts if it is large.
  at::Tensor in_out(const at::Tensor& tensor, const collectives::ShardPlan& plan,
                    const std::shared_ptr<CallbackThread>& callback_thread);
  Staged take();

 private:
  at::Tensor host_for(const at::Tensor& tensor);
  void copy_down(const at::Tensor& from, const at::Tensor& to);
  void mark(size_t ready);
  CopySite copy_site(const at::Tensor& tensor, const char* what) const;

  const CallSite& site_;
  const std::shared_ptr<Transfers>& transfers_;
  Staged staged_;
  std::vector<c10::Device> devices_;  // devices that a tensor is copied from
  size_t bytes_down_ = 0;             // copied bytes that no mark covers yet
};

// True for a contiguous tensor whose memory holds the values that it shows.
bool is_plain(const at::Tensor& tensor);
// True for a plain tensor in host memory, which Staging returns itself.
bool stands_for_itself(const at::Tensor& tensor);
// `tensor` if it is plain, else a copy on its device. Data only: without gradient.
at::Tensor plain(const at::Tensor& tensor);

// Refuses a call if its stream records a graph.
void check_not_capturing(const CallSite& site, c10::Device device);

// Copies the block of a rank for itself: now, or when it is complete. Both may overlap.
// `held`: see OwnCopy.
void copy_own(Staged& staged, const OutBlock& from, const InBlock& to,
              const std::vector<at::Tensor>& held);
void copy_block(const OutBlock& from, const InBlock& to);

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Contiguous host tensors that stand in for the tensors of one call: for those on a
// device, for those whose elements do not lie one behind another, and for conjugate and
// negative views, whose memory holds other values than they show. Other contiguous CPU
// tensors stand for themselves; one that shares memory until it is written gets its own
// here, so that pointers to read from and to write to agree, taken in any order.
//
// Note [copies of a call]
// A tensor on a device stands in pinned memory. Its copy down is queued on a stream of
// its own, behind what the caller's stream has to do, and the call returns: it is held
// (engine/communicator.h) until the copy is through. The copy up is queued when the
// result is there, behind what was pending on the caller's stream at the call. A large
// strict allreduce goes in parts: it begins with the first, and each part of the result
// is copied up while others are under way.

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "c10d/blocks.h"
#include "c10d/finisher.h"
#include "c10d/tensor_check.h"
#include "c10d/transfers.h"
#include "collectives/parts.h"
#include "collectives/shard_plan.h"

namespace aikido::adapter {

// The copy up of a result whose parts come one by one. Any thread.
class ResultParts : public std::enable_shared_from_this<ResultParts> {
 public:
  ResultParts(at::Tensor host, at::Tensor tensor, CopySite site,
              std::shared_ptr<Transfers> transfers, std::shared_ptr<Finisher> finisher);
  // These bytes are there. From the progress thread, which must not let go of `this`.
  void add(size_t begin, size_t end);
  // Queues the copies of all parts that are there. Throws, and then again and again.
  void flush();
  // The call has failed: from here on nothing is copied.
  void drop();

 private:
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  const at::Tensor host_, tensor_;
  const CopySite site_;
  const std::shared_ptr<Transfers> transfers_;
  const std::shared_ptr<Finisher> finisher_;
  std::mutex flushing_;  // held while copies are being queued
  // Guarded by flushing_.
  bool is_dropped_ = false;
  std::exception_ptr error_;
  std::mutex mutex_;
  // Guarded by mutex_.
  Ranges ranges_;
  size_t num_bytes_ = 0;  // of these
  bool is_flush_due_ = false;
};

// What is written back before a work completes.
struct Copy {
  at::Tensor tensor;
  at::Tensor host;
  std::shared_ptr<const Mark> pending;  // of the caller's stream; null: nothing
  std::shared_ptr<ResultParts> parts;   // null: as one
};

// What is on its way to the host.
struct CopyDown {
  std::vector<Mark> marks;  // through when these are passed
  CopySite site;
  size_t ready = 0;  // with parts: bytes of each shard that are then there
};

// What a rank has for itself, where it is not there yet.
struct OwnCopy {
  OutBlock from;
  InBlock to;
  std::vector<at::Tensor> held;  // with the memory of both
};

// All that a call has to do with devices and other memory.
struct Staged {
  std::vector<Copy> copies;
  std::vector<CopyDown> downs;      // in their order; the call starts with the first
  std::vector<at::Tensor> sources;  // of these, unless they are in copies
  std::function<void(size_t, size_t)> on_result = {};  // with parts
  std::vector<OwnCopy> own_copies = {};
};

class Staging {
 public:
  // Both stay for as long as this.
  Staging(const CallSite& site, const std::shared_ptr<Transfers>& transfers)
      : site_(site), transfers_(transfers) {}

  // To be read; to be written; both. All throw, for a stream that captures a graph too.
  at::Tensor in(const at::Tensor& tensor);
  at::Tensor out(const at::Tensor& tensor);
  at::Tensor in_out(const at::Tensor& tensor);
  // The same for an allreduce that goes shard by shard: in parts if it is large.
  at::Tensor in_out(const at::Tensor& tensor, const collectives::ShardPlan& plan,
                    const std::shared_ptr<Finisher>& finisher);
  Staged take();

 private:
  at::Tensor host_for(const at::Tensor& tensor);
  void copy_down(const at::Tensor& from, const at::Tensor& to);
  void mark(size_t ready);
  CopySite copy_site(const at::Tensor& tensor, const char* what) const;

  const CallSite& site_;
  const std::shared_ptr<Transfers>& transfers_;
  Staged staged_;
  std::vector<c10::Device> devices_;  // from which something is copied down
  size_t bytes_down_ = 0;             // that no mark stands for yet
};

// Contiguous, and of the values that its memory holds.
bool is_plain(const at::Tensor& tensor);
// That, and in memory of the host: Staging gives it back.
bool stands_for_itself(const at::Tensor& tensor);
// `tensor` if it is plain, else a copy on its device. Of the data alone: no gradient
// goes through it.
at::Tensor plain(const at::Tensor& tensor);

// Refuses a call whose stream records a graph.
void check_not_capturing(const CallSite& site, c10::Device device);

// What a rank has for itself: now, or when it is there. They may overlap. `held`: as of
// OwnCopy.
void copy_own(Staged& staged, const OutBlock& from, const InBlock& to,
              const std::vector<at::Tensor>& held);
void copy_block(const OutBlock& from, const InBlock& to);

}  // namespace aikido::adapter

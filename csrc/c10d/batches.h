// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Batches of a group: the calls of one thread from start() to end() are one work. If
// the thread waits for that work in between, its later calls are another work, which
// completes after the first. Each thread has at most one batch. Any thread.
//
//   none --start()--> open --refuse()--> refused --current() or end()--> none
//                      `--end()--> none

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "c10d/common/title.h"
#include "c10d/work.h"

namespace aikido::adapter {

// Title of a batch that the user has started.
inline constexpr Title kCoalesced{::c10d::OpType::COALESCED, "aikido:coalesced"};

class Batches {
 public:
  using OwnWork = c10::intrusive_ptr<AikidoWork>;
  using Tensors = std::vector<at::Tensor>;

  explicit Batches(std::shared_ptr<const AikidoWork::Services> services)
      : services_(std::move(services)) {}

  // True if no thread has a batch. Takes no lock.
  bool is_empty() const { return num_ == 0; }
  // Work that takes the next call of this thread, which is `rank`. Null: no batch.
  OwnWork current(int rank);
  // Begins a batch of this thread, and ends its present batch if there is one.
  void start(int rank, const Title& title, const Tensors& inputs);
  // Ends the batch of this thread. Null: it has none.
  OwnWork end();
  // A call of this thread was refused: its batch, if there is one, takes no more calls.
  void refuse();

 private:
  struct Batch {
    OwnWork work;
    bool is_refused = false;
  };
  OwnWork make(int rank, const Title& title, const Tensors& inputs) const;

  const std::shared_ptr<const AikidoWork::Services> services_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Batch> by_thread_;  // guarded by mutex_
  std::atomic<int> num_ = 0;                       // of by_thread_
};

}  // namespace aikido::adapter

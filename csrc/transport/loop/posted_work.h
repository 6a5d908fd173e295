// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Queue of work that other threads post to an event loop.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "base/recycler.h"

namespace aikido::transport {

class PostedWork {
 public:
  // Limit of posted work per turn. Received data, heartbeats and time-outs come after
  // it, regardless of how much is posted.
  static constexpr size_t kMaxPerTurn = 256;

  // Any thread.
  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
    is_posted_ = true;
  }
  // Any thread: true if the caller must wake the loop. One wake-up covers all work that
  // is posted before the next turn takes it.
  bool needs_wake_up() {
    const std::lock_guard lock(mutex_);
    return !posted_.empty() && !std::exchange(is_wake_pending_, true);
  }

  // The rest is for the thread of the turn.

  // False if work is left from the last turn, because it was too much or an exception
  // ended that turn, or if work was posted since.
  bool is_empty() const { return work_.empty() && !is_posted_; }
  // Runs the work in the order of posting, within the limit of a turn.
  void run() {
    if (is_posted_) take();
    // One at a time, so that an exception of one function does not lose the others.
    for (size_t i = 0; i < kMaxPerTurn && !work_.empty(); ++i) {
      const auto work = std::move(work_.front());
      work_.pop_front();
      work();
    }
  }

 private:
  void take() {
    const std::lock_guard lock(mutex_);
    std::move(posted_.begin(), posted_.end(), std::back_inserter(work_));
    posted_.clear();
    is_wake_pending_ = false;
    is_posted_ = false;
  }

  Recycler recycler_{4 << 10};
  // Taken from posted_, and being run.
  RecycledDeque<std::function<void()>> work_{recycler_};
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<std::function<void()>> posted_;
  bool is_wake_pending_ = false;
  // True if posted_ is not empty; read without the lock. A thread that posts afterwards
  // sees that another thread is in a turn, and wakes the thread that looks next.
  std::atomic<bool> is_posted_{false};
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Calls in the order of their numbers, from the first that waits for data of its
// device. Later calls wait behind it, so that the order stays.

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "base/status.h"
#include "collectives/parts.h"

namespace aikido::engine {

// The caller has a lock, except for size().
class HeldCalls {
 public:
  // `enqueue` takes the work of a call whose turn it is.
  explicit HeldCalls(std::function<void(std::function<void()>)> enqueue)
      : enqueue_(std::move(enqueue)) {}

  // `work` enters the group when `hold` is released, and the calls before it have
  // entered. Null: it waits for those only.
  void enter(const std::shared_ptr<collectives::Hold>& hold,
             std::function<void()> work);
  // The data of a held call is ready, or will not come (`failure`). Only the first call
  // has an effect; returns true for it.
  bool release(collectives::Hold& hold, const Status& failure);
  // Releases all calls with a failure. Their devices may still work, but no thread
  // waits for that any more.
  void give_up(const Status& why);

  // Number of calls that have not entered. Any thread, without the lock.
  size_t size() const { return size_; }

 private:
  struct Held {
    std::shared_ptr<collectives::Hold> hold;  // null: waits for earlier calls only
    std::function<void()> enter;
  };
  void enter_released();

  const std::function<void(std::function<void()>)> enqueue_;
  std::deque<Held> held_;
  std::atomic<size_t> size_ = 0;
};

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Calls with data that is still on its way from a device. Hold: the call waits for the
// data outside of its operation. Parts: the operation begins with the data that has
// arrived, and reports the parts of its result that are ready.

#include <functional>
#include <utility>

#include "base/status.h"

namespace aikido::collectives {

// Created with the call, and released once. The lock of engine/communicator.h guards
// it.
struct Hold {
  bool is_released = false;
  Status failure;  // reason why the data will not come
};

// For a strict, direct allreduce. Progress thread.
class Parts {
 public:
  // Bytes `begin` to `end` of the result are final; whole elements.
  using OnResult = std::function<void(size_t begin, size_t end)>;

  // `ready`: readable bytes of each shard, from its first byte; whole elements.
  Parts(size_t ready, OnResult on_result)
      : ready_(ready), on_result_(std::move(on_result)) {}

  // More bytes are readable than before.
  void advance(size_t ready) {
    ready_ = ready;
    tell_more();
  }
  // No more bytes will come: the operation fails on all members.
  void fail(const Status& why) {
    failure_ = why;
    tell_more();
  }

  // Used by the operation.
  void on_more(std::function<void()> on_more) { on_more_ = std::move(on_more); }
  size_t ready() const { return ready_; }
  const Status& failure() const { return failure_; }
  void tell_result(size_t begin, size_t end) const { on_result_(begin, end); }

 private:
  // Calls a copy, because the operation may end in the call and reset the function.
  void tell_more() {
    if (const auto on_more = on_more_) on_more();
  }

  size_t ready_;
  Status failure_;
  OnResult on_result_;
  std::function<void()> on_more_;
};

}  // namespace aikido::collectives

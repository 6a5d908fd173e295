// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Calls whose data is not all there when they are made, because it is still on its way
// from a device. Hold: the call waits for it outside of its operation. Parts: the
// operation begins with what is there, and tells what of its result is there.

#include <functional>
#include <utility>

#include "base/status.h"

namespace aikido::collectives {

// Made with the call, and released once (engine/communicator.h), whose lock guards it.
struct Hold {
  bool is_released = false;
  Status failure;  // why the data will not come
};

// Of a strict, direct allreduce. Progress thread.
class Parts {
 public:
  // Elements of the result from byte `begin` to `end` are what they will be.
  using OnResult = std::function<void(size_t begin, size_t end)>;

  // `ready`: bytes of each shard, from its first, that may be read: whole elements.
  Parts(size_t ready, OnResult on_result)
      : ready_(ready), on_result_(std::move(on_result)) {}

  // More than before.
  void advance(size_t ready) {
    ready_ = ready;
    tell_more();
  }
  // No more will come: the operation fails on all members.
  void fail(const Status& why) {
    failure_ = why;
    tell_more();
  }

  // For the operation.
  void on_more(std::function<void()> on_more) { on_more_ = std::move(on_more); }
  size_t ready() const { return ready_; }
  const Status& failure() const { return failure_; }
  void tell_result(size_t begin, size_t end) const { on_result_(begin, end); }

 private:
  // A copy: the operation may end by it, and is then told no more.
  void tell_more() {
    if (const auto on_more = on_more_) on_more();
  }

  size_t ready_;
  Status failure_;
  OnResult on_result_;
  std::function<void()> on_more_;
};

}  // namespace aikido::collectives

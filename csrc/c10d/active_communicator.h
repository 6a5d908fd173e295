// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Holder of the communicator of a group with changing members. A call keeps the
// communicator that it began with. Any thread.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "c10d/common/error.h"
#include "engine/communicator.h"

namespace aikido::adapter {

class ActiveCommunicator {
 public:
  using Pointer = std::shared_ptr<engine::Communicator>;

  explicit ActiveCommunicator(std::string group_name)
      : group_name_(std::move(group_name)) {}

  // Present communicator. Throws Error if there is none.
  Pointer operator->() const {
    if (Pointer pointer = get()) return pointer;
    raise({Code::kInvalidArgument,
           concat("group \"", group_name_,
                  "\" has no members yet: it was made with enable_reconfigure=True; "
                  "call aikido_torch.reconfigure(uuid, handles) first")});
  }
  // Throws like operator->, before anything is prepared for a call.
  void check() const { operator->(); }
  // Null if there is none.
  Pointer get() const {
    const std::lock_guard lock(mutex_);
    return pointer_;
  }
  // Returns the previous communicator.
  Pointer exchange(Pointer next) {
    const std::lock_guard lock(mutex_);
    num_exchanges_ = 0;
    return std::exchange(pointer_, std::move(next));
  }
  // Present communicator, and the number of its next exchange of items
  // (engine/reassign_exchange.h). Throws like operator->.
  std::pair<Pointer, uint64_t> next_exchange() const {
    check();
    const std::lock_guard lock(mutex_);
    return {pointer_, num_exchanges_++};
  }

 private:
  std::string group_name_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Pointer pointer_;
  mutable uint64_t num_exchanges_ = 0;  // made on pointer_
};

}  // namespace aikido::adapter

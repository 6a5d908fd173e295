// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// State of a group on this rank: aborted or not, shut down or not, and the change of
// its members that is under way. Decides nothing else, and ends nothing itself. Any
// thread; at most one thread changes the members.
//
//   open  --abort()--> aborted           aborted --begin_change()--> open, changing
//   open  --begin_change()--> changing   changing --end_change() or give_up_change()-->
//   any   --shut_down()--> shut down, for good

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "engine/communicator.h"

namespace aikido::adapter {

class GroupState {
 public:
  using CommunicatorPtr = std::shared_ptr<engine::Communicator>;

  bool is_aborted() const {
    const std::lock_guard lock(mutex_);
    return is_aborted_;
  }
  bool is_shut_down() const {
    const std::lock_guard lock(mutex_);
    return is_shut_down_;
  }
  // True after an action of this rank itself.
  bool is_over() const {
    const std::lock_guard lock(mutex_);
    return is_aborted_ || is_shut_down_;
  }

  // Both return the communicator of the new members, which the caller aborts. Null: no
  // change is under way.
  CommunicatorPtr abort() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    return next_.lock();
  }
  CommunicatorPtr shut_down() {
    const std::lock_guard lock(mutex_);
    is_shut_down_ = true;
    return next_.lock();
  }

  enum class Refusal : uint8_t { kNone, kShutDown, kUsedUuid };
  // A change to the members of `next` begins. Each uuid can be used once.
  Refusal begin_change(int64_t uuid, const CommunicatorPtr& next) {
    const std::lock_guard lock(mutex_);
    if (is_shut_down_) return Refusal::kShutDown;
    if (!used_uuids_.insert(uuid).second) return Refusal::kUsedUuid;
    was_aborted_ = std::exchange(is_aborted_, false);
    next_ = next;
    return Refusal::kNone;
  }
  // The change has failed: the group is as it was.
  void give_up_change() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = is_aborted_ || was_aborted_;
    next_.reset();
  }
  // The group has its new members.
  void end_change() {
    const std::lock_guard lock(mutex_);
    next_.reset();
  }

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool is_aborted_ = false, is_shut_down_ = false;
  bool was_aborted_ = false;  // before the change
  std::weak_ptr<engine::Communicator> next_;
  std::set<int64_t> used_uuids_;
};

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Hooks of other parts for the abort and for the end of one group. Any thread. The
// destruction of a hook may take Python's lock, so it never happens under the own lock.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "c10d/common/compat.h"

namespace aikido::adapter {

class EndHooks {
 public:
  using AbortHook = std::function<void()>;
  // Gets the time that it may take.
  using EndHook = std::function<void(Milliseconds)>;

  // Replaces the hook with that id.
  void add_abort_hook(int64_t id, AbortHook hook) {
    const std::lock_guard lock(mutex_);
    abort_hooks_[id].swap(hook);
  }
  // Does nothing if there is none with that id.
  void remove_abort_hook(int64_t id) {
    AbortHook removed;
    const std::lock_guard lock(mutex_);
    const auto it = abort_hooks_.find(id);
    if (it == abort_hooks_.end()) return;
    removed.swap(it->second);
    abort_hooks_.erase(it);
  }
  // A copy, because the hooks may add and remove hooks.
  std::map<int64_t, AbortHook> abort_hooks() const {
    const std::lock_guard lock(mutex_);
    return abort_hooks_;
  }
  void set_end_hook(EndHook hook) {
    const std::lock_guard lock(mutex_);
    end_hook_.swap(hook);
  }
  // Takes the end hook out, for one call of it. Empty: there is none, or it was taken
  // before.
  EndHook take_end_hook() {
    const std::lock_guard lock(mutex_);
    return std::exchange(end_hook_, {});
  }

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<int64_t, AbortHook> abort_hooks_;
  EndHook end_hook_;
};

}  // namespace aikido::adapter

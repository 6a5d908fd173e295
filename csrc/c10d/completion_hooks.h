// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Hooks for the end of the calls of one group, and the count of calls that have not
// ended. Shared by the backend and its works. All methods from any thread.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "c10d/common/callback_thread.h"
#include "c10d/common/compat.h"

namespace aikido::adapter {

// One call that ended.
struct Ended {
  ::c10d::OpType type;
  uint64_t seq;
  uint64_t key;  // Work::getCompletionKey()
  TimePoint started;
  std::optional<TimePoint>
      finished;  // set if the call is timed or there was an info hook
  bool is_ok;
  bool is_timed;  // the group was timing when the call was made
};

class CompletionHooks : public std::enable_shared_from_this<CompletionHooks> {
 public:
  using InfoHook = std::function<void(std::shared_ptr<::c10d::WorkInfo>)>;
  using CompletionHook = std::function<void(uint64_t key, std::optional<float> ms)>;

  explicit CompletionHooks(std::shared_ptr<CallbackThread> callback_thread)
      : callback_thread_(std::move(callback_thread)) {}

  // Hook for every call, including failed ones, one after another, on the callback
  // thread. It may take Python's lock. Can be set once.
  void set_info_hook(InfoHook hook);
  // Hook for calls that ended well, on the progress thread. It must be short and must
  // not take Python's lock. It may be removed under a lock that it takes itself. During
  // the removal it may be called once more.
  void add(int64_t id, CompletionHook hook);
  void remove(int64_t id);

  void enable_timing() { is_timing_ = true; }
  bool is_timing() const { return is_timing_; }

  bool has_info_hook() const { return has_info_hook_; }

  void on_started() { ++num_pending_; }
  // Progress thread, or any thread that ends the call.
  void on_ended(const Ended& ended);
  // Waits until all calls have ended and the info hook was called for them. False: that
  // takes longer than `timeout`.
  bool wait_until_idle(Milliseconds timeout);

 private:
  using HookMap = std::map<int64_t, CompletionHook>;

  std::shared_ptr<const HookMap> all_hooks();
  void end_one();
  void tell_all();
  void tell(const Ended& ended, TimePoint finished);

  std::shared_ptr<CallbackThread> callback_thread_;
  std::atomic<bool> is_timing_ = false;
  std::atomic<bool> has_info_hook_ = false;
  std::atomic<uint64_t> num_pending_ = 0;
  std::atomic<int> num_waiting_ = 0;  // threads that wait until no call is pending
  std::mutex mutex_;
  std::condition_variable idle_;
  InfoHook info_hook_;  // set once has_info_hook_ is true, and then constant
  // Guarded by mutex_. Calls that the info hook must still get. If a hook blocks, the
  // callback thread has other threads for later calls.
  std::deque<std::pair<Ended, TimePoint>> untold_;
  bool is_telling_ = false;
  // Guarded by mutex_. The object behind it never changes.
  std::shared_ptr<const HookMap> hooks_ = std::make_shared<const HookMap>();
};

}  // namespace aikido::adapter

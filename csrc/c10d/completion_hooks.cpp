// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/completion_hooks.h"

#include <utility>

#include "c10d/common/error.h"

namespace aikido::adapter {

void CompletionHooks::set_info_hook(InfoHook hook) {
  const std::lock_guard lock(mutex_);
  if (info_hook_) {
    raise({Code::kInvalidArgument,
           "this group has a completion hook already; only one can be registered"});
  }
  info_hook_ = std::move(hook);
  has_info_hook_ = true;
}

void CompletionHooks::add(int64_t id, CompletionHook hook) {
  const std::lock_guard lock(mutex_);
  auto hooks = std::make_shared<HookMap>(*hooks_);
  if (!hooks->emplace(id, std::move(hook)).second) {
    raise({Code::kInvalidArgument,
           concat("a completion hook with id ", id, " is registered already")});
  }
  hooks_ = std::move(hooks);
}

void CompletionHooks::remove(int64_t id) {
  const std::lock_guard lock(mutex_);
  auto hooks = std::make_shared<HookMap>(*hooks_);
  if (hooks->erase(id) == 0) {
    raise({Code::kInvalidArgument, concat("no completion hook has the id ", id)});
  }
  hooks_ = std::move(hooks);
}

std::shared_ptr<const CompletionHooks::HookMap> CompletionHooks::all_hooks() {
  const std::lock_guard lock(mutex_);
  return hooks_;
}

void CompletionHooks::on_ended(const Ended& ended) {
  if (ended.is_ok) {
    std::optional<float> ms;
    if (ended.is_timed) ms = static_cast<float>(to_ms(*ended.finished - ended.started));
    // Not under the own lock, because a hook of torch takes the lock under which it is
    // removed.
    const auto hooks = all_hooks();
    for (const auto& [id, hook] : *hooks) hook(ended.key, ms);
  }
  if (!has_info_hook_) return end_one();
  // The hook may be newer than the call.
  const TimePoint finished = ended.finished ? *ended.finished : SystemClock().now();
  {
    const std::lock_guard lock(mutex_);
    untold_.emplace_back(ended, finished);
  }
  callback_thread_->run([this, self = shared_from_this()] { tell_all(); });
}

void CompletionHooks::tell_all() {
  std::unique_lock lock(mutex_);
  if (is_telling_) return;  // another thread continues with it
  is_telling_ = true;
  while (!untold_.empty()) {
    const auto [ended, finished] = untold_.front();
    untold_.pop_front();
    lock.unlock();
    tell(ended, finished);
    end_one();
    lock.lock();
  }
  is_telling_ = false;
}

void CompletionHooks::tell(const Ended& ended, TimePoint finished) {
  const auto at = [](TimePoint t) {
    return std::chrono::steady_clock::time_point(t.time_since_epoch());
  };
  // An exception of a hook must not end the process.
  try {
    info_hook_(std::make_shared<::c10d::WorkInfo>(
        ended.type, ended.seq, at(ended.started), at(finished),
        std::chrono::duration<float>(finished - ended.started)));
  } catch (const std::exception& error) {
    TORCH_WARN("the completion hook of a group raised for call ", ended.seq, ": ",
               error.what());
  }
}

void CompletionHooks::end_one() {
  if (--num_pending_ > 0 || num_waiting_ == 0) return;
  // A waiting thread has checked before, or checks after it gets the lock.
  const std::lock_guard lock(mutex_);
  idle_.notify_all();
}

bool CompletionHooks::wait_until_idle(Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  ++num_waiting_;
  const bool is_idle =
      idle_.wait_for(lock, timeout, [this] { return num_pending_ == 0; });
  --num_waiting_;
  return is_idle;
}

}  // namespace aikido::adapter

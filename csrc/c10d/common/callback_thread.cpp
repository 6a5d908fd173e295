// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/common/callback_thread.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace aikido::adapter {
namespace {

// Longer than most callbacks, and short compared with a wait for a network.
constexpr auto kStuckAfter = std::chrono::milliseconds(2);

}  // namespace

class CallbackThread::Crew : public std::enable_shared_from_this<CallbackThread::Crew> {
 public:
  void start() {
    const std::lock_guard lock(mutex_);
    add_thread();
  }

  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    wake_.notify_one();
  }

  void stop() {
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(stop_, true)) return;
      threads = std::move(threads_);
    }
    wake_.notify_all();
    for (std::thread& t : threads) {
      if (t.get_id() == std::this_thread::get_id()) {
        t.detach();
      } else {
        t.join();
      }
    }
  }

 private:
  // Requires mutex_.
  void add_thread() {
    threads_.emplace_back([self = shared_from_this()] { self->loop(); });
  }

  void loop() {
    ::pthread_setname_np(::pthread_self(), "aikido-finish");
    std::unique_lock lock(mutex_);
    while (true) {
      ++num_waiting_;
      const bool has_work = wait_for_turn(lock);
      --num_waiting_;
      if (!has_work) return;
      ++num_running_;
      while (!work_.empty()) {
        auto work = std::move(work_.front());
        work_.pop_front();
        ++num_taken_;
        // Another thread must be able to notice if this one is stuck.
        if (num_waiting_ == 0 && !stop_) add_thread();
        lock.unlock();
        work();
        work = nullptr;
        lock.lock();
      }
      --num_running_;
    }
  }

  // Returns true when there is work to take, and false when there will be none.
  bool wait_for_turn(std::unique_lock<std::mutex>& lock) {
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !work_.empty(); });
      if (work_.empty()) return false;
      if (num_running_ == 0) return true;
      // Another thread is working. One finished item per period counts as progress.
      const uint64_t seen = num_taken_;
      wake_.wait_for(lock, kStuckAfter,
                     [this] { return work_.empty() || num_running_ == 0; });
      if (!work_.empty() && (num_taken_ == seen || num_running_ == 0)) return true;
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  std::deque<std::function<void()>> work_;
  uint64_t num_taken_ = 0;   // number of items taken so far
  int32_t num_running_ = 0;  // threads in their work
  int32_t num_waiting_ = 0;  // threads that wait for work
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

CallbackThread::CallbackThread() : crew_(std::make_shared<Crew>()) {
  crew_->start();
}

CallbackThread::~CallbackThread() {
  stop();
}

void CallbackThread::stop() {
  if (own_process_.is_here()) return crew_->stop();
  // A forked child has no such threads, and the lock may be held forever. So the child
  // leaves all of this as it is.
  [[maybe_unused]] static const auto* leaked = new std::shared_ptr<Crew>(crew_);
}

void CallbackThread::run(std::function<void()> work) {
  crew_->push(std::move(work));
}

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/finisher.h"

#include <pthread.h>

#include <utility>

namespace aikido::adapter {

Finisher::Finisher() : thread_([this] { loop(); }) {}

Finisher::~Finisher() {
  stop();
}

void Finisher::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stop_, true)) return;
  }
  wake_.notify_one();
  // Its own work may hold the last reference to it.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Finisher::run(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void Finisher::loop() {
  ::pthread_setname_np(::pthread_self(), "aikido-finish");
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !work_.empty(); });
    auto work = std::exchange(work_, {});
    const bool is_last = stop_;
    lock.unlock();
    for (auto& w : work) w();
    work.clear();
    if (is_last) return;
    lock.lock();
  }
}

}  // namespace aikido::adapter

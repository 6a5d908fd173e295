// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A thread for what must not run on the progress thread: callbacks of futures (they may
// take Python's lock), copies back to devices, and the last release of tensors. One per
// process. All methods from any thread.

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace aikido::adapter {

class Finisher {
 public:
  Finisher();
  ~Finisher();
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;

  // Runs `work` soon, in order.
  void run(std::function<void()> work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> work_;  // guarded by mutex_
  bool stop_ = false;                        // guarded by mutex_
  pid_t pid_;
  std::thread thread_;
};

}  // namespace aikido::adapter

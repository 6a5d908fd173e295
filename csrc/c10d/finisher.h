// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A thread for what must not run on the progress thread: callbacks of futures (they may
// take Python's lock), copies back to devices, and the last release of tensors. One per
// process. All methods from any thread.

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

  // Finishes what it was given and ends the thread. For the end of the process, before
  // Python takes its lock away for good; must not be called with that lock held.
  void stop();

  // Runs `work` soon, in order. After stop() never: the process is ending, and what the
  // work holds on to ends with it.
  void run(std::function<void()> work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> work_;  // guarded by mutex_
  bool stop_ = false;                        // guarded by mutex_
  std::thread thread_;
};

}  // namespace aikido::adapter

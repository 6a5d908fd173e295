// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Thread for work that must not run on the progress thread: callbacks of futures, which
// may take Python's lock, copies back to devices, and the last release of tensors. One
// per process. All methods from any thread.
//
// A callback may wait for another future, as torch's PowerSGD hook does. That future is
// marked by this thread too. So if the thread is stuck in its work while more waits,
// another thread starts. As a result, works may overtake each other.

#include <functional>
#include <memory>

#include "base/own_process.h"

namespace aikido::adapter {

class CallbackThread {
 public:
  CallbackThread();
  ~CallbackThread();
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;

  // Does the remaining work and ends the threads. Called at the end of the process,
  // before Python's lock becomes unavailable for good. Must not be called with that
  // lock held.
  void stop();

  // Runs `work` soon. After stop() it never runs, because the process is ending;
  // objects held by `work` end with the process.
  void run(std::function<void()> work);

 private:
  class Crew;
  // The threads hold it too, because their own work may hold the last reference to this
  // object.
  std::shared_ptr<Crew> crew_;
  OwnProcess own_process_;
};

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A thread for what must not run on the progress thread: callbacks of futures (they may
// take Python's lock), copies back to devices, and the last release of tensors. One per
// process. All methods from any thread.
//
// A callback may wait for another future (torch's PowerSGD hook does), which somebody
// has to mark: when the thread is stuck in its work while more waits, another one steps
// in. So works may overtake each other.

#include <functional>
#include <memory>

#include "base/own_process.h"

namespace aikido::adapter {

class Finisher {
 public:
  Finisher();
  ~Finisher();
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;

  // Finishes what it was given and ends the threads. For the end of the process, before
  // Python takes its lock away for good; must not be called with that lock held.
  void stop();

  // Runs `work` soon. After stop() never: the process is ending, and what the
  // work holds on to ends with it.
  void run(std::function<void()> work);

 private:
  class Crew;
  // The threads hold it too: their own work may hold the last reference to the rest.
  std::shared_ptr<Crew> crew_;
  OwnProcess own_process_;
};

}  // namespace aikido::adapter

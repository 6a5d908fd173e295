// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The cores on which threads run, and how long they wait for one.

#include <sched.h>

#include <optional>

#include "base/clock.h"
#include "base/fd.h"

namespace aikido {

// The calling thread goes on on another of the cores that it may run on, the system
// says which, and may run on all of them as before. It takes some tenths of a
// millisecond where the other core has to be woken up. For the system the thread has
// chosen these cores from then on: it gets none of those that its cpuset is given
// later. False: there is no other core, or the system refuses. Any thread.
bool move_to_another_core();

// Keeps a thread away from a core for a while. Of one thread, which also ends it.
class OtherCores {
 public:
  OtherCores() = default;
  OtherCores(const OtherCores&) = delete;
  OtherCores& operator=(const OtherCores&) = delete;
  ~OtherCores() { come_back(); }

  // The same as move_to_another_core(), but until come_back() the thread does not run
  // on the core that it has left. Once it is away it leaves the present core for all
  // others.
  bool leave();
  // It may run where it could before the first leave(), unless somebody else has said
  // meanwhile where it may. Nothing where it has not left.
  void come_back();

 private:
  bool is_as_left() const;

  bool is_away_ = false;
  cpu_set_t all_;
  cpu_set_t others_;
};

// What the system counts of threads that are ready to run. Of the thread that made it;
// where that may run is asked then, once.
class ReadyThreads {
 public:
  ReadyThreads();
  // How long this thread was ready and had no core, since it began. Empty where the
  // system does not count it.
  std::optional<Duration> waited() const;
  // Now no more are ready on this machine than it has cores, and this thread may run on
  // each: so if it shares one, another is idle. False where the system does not say.
  bool fit_cores() const;

 private:
  long num_cores_ = 0;  // 0: there are some on which this thread may not run
  Fd own_;
  Fd all_;
};

}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Cores of threads: moves between cores, and the time that threads wait for a core.

#include <sched.h>

#include <optional>

#include "base/clock.h"
#include "base/fd.h"

namespace aikido {

// Moves the calling thread to another of its cores, which the system chooses.
// Afterwards the thread may run on all of them as before. The move takes some tenths of
// a millisecond if the other core must wake up. From then on the system regards these
// cores as the choice of the thread: cores that its cpuset gets later are not used.
// Returns false if there is no other core, or if the system refuses. Any thread.
bool move_to_another_core();

// Keeps a thread away from a core for a while. Used and destroyed by that thread only.
class OtherCores {
 public:
  OtherCores() = default;
  OtherCores(const OtherCores&) = delete;
  OtherCores& operator=(const OtherCores&) = delete;
  ~OtherCores() { come_back(); }

  // Like move_to_another_core(), but until come_back() the thread does not run on the
  // core that it has left. A thread that is away leaves the present core for all
  // others.
  bool leave();
  // Restores the cores of the thread before the first leave(), unless other code has
  // changed them meanwhile. Does nothing if the thread has not left.
  void come_back();

 private:
  bool is_as_left() const;

  bool is_away_ = false;
  cpu_set_t all_;
  cpu_set_t others_;
};

// Counters of the system about threads that are ready to run. For the thread that
// creates it; the cores of that thread are read once, at the creation.
class ReadyThreads {
 public:
  ReadyThreads();
  // Time since its beginning during which this thread was ready and had no core.
  // nullopt if the system does not count it.
  std::optional<Duration> waited() const;
  // True if the machine has as many cores as ready threads, or more, and this thread
  // may run on each core: so if it shares a core, another core is idle. False if
  // unknown.
  bool fit_cores() const;

 private:
  long num_cores_ = 0;  // 0: there are some on which this thread may not run
  Fd own_;
  Fd all_;
};

}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Sleep of the loop's own thread, behind a gate and beside an alarm; see Note [threads
// that run turns] in event_loop.h. The gate is an epoll that contains only the epoll of
// the loop.
//
//   awake --fall_asleep()--> asleep, sleep() --wake_up()--> awake
//
// Thread of the turn, unless said otherwise.

#include <atomic>
#include <optional>

#include "base/clock.h"
#include "base/fd.h"

namespace aikido::transport {

class OwnThreadSleep {
 public:
  // `epoll`: of the loop, which outlives this object. Throws std::system_error if the
  // kernel refuses a descriptor.
  explicit OwnThreadSleep(int epoll);

  // Through an open gate, events of the loop end the sleep.
  void set_gate(bool is_open);

  // End of the sleep, or the end of the time that the loop stays awake if that is
  // later. Empty: the thread is awake and will look.
  const std::optional<TimePoint>& until() const { return until_; }
  void fall_asleep(TimePoint until) { until_ = until; }
  void wake_up() { until_.reset(); }
  // Loop's own thread, not in a turn: sleeps until an event comes through the gate, or
  // until `most` has passed (empty: no limit) and no caller is expected to return
  // before `awake_until`.
  void sleep(std::optional<Duration> most, const std::atomic<TimePoint>& awake_until);
  // Ends the sleep at `due` if it would end later.
  void set_alarm(TimePoint due);

 private:
  void turn_alarm_off();

  SystemClock clock_;
  int epoll_;
  Fd gate_;
  Fd alarm_;
  bool is_gate_open_ = true;
  std::optional<TimePoint> until_;
};

}  // namespace aikido::transport

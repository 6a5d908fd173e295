// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/helper_wait.h"

#include <sched.h>


namespace aikido::transport {

void HelperWait::yield() {
  const TimePoint before = clock_.now();
  ::sched_yield();
  const TimePoint after = clock_.now();
  wait_.yielded(after, after - before);
  if (wait_.spins() && core_.yielded(after, after - before)) move_to_another_core();
}

void HelperWait::look_for_core() {
  if (!ready_) ready_.emplace();
  const auto waited = ready_->waited();
  if (!waited) return crowded_.give_up();
  if (!crowded_.looked(clock_.now(), *waited)) return;
  const bool is_another_idle = ready_->fit_cores();
  // The core that the thread has left may be the better choice by now.
  if (!is_another_idle) other_cores_.come_back();
  if (crowded_.counts(is_another_idle)) other_cores_.leave();
}

}  // namespace aikido::transport

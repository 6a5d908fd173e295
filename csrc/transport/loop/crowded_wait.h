// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decision if a thread with a long wait leaves its core. Pure; one thread at a time.
//
// Note [woken up on a busy core]
// The sender and the receiver of much data copy at the same time, on two cores. If one
// of them sleeps in between, the kernel wakes it on an idle core, or else on the core
// of its waker. In a virtual machine the kernel may find no idle core, because an idle
// virtual CPU is halted. Then the two threads share one core while another core is
// idle. They need twice the time, until the kernel's load balancer moves one.
//   Rule (our design): in a long wait, the thread asks the kernel how long it was ready
// without a core. It leaves its core if that is repeatedly a large part of the time,
// and each time no more threads are ready than there are cores. Then one of these cores
// is idle. It avoids the old core until the wait ends, because the next wake-up would
// move it back, or until it shares a core again while no core is idle. If both threads
// left, they would meet again. So the number of looks before leaving is random. Short
// waits do not pay for the system calls.

#include <optional>
#include <random>
#include <utility>

#include "base/clock.h"

namespace aikido::transport {

class CrowdedWait {
 public:
  // Times from the begin of a wait to the first look, and between two looks.
  static constexpr Duration kUntilFirst = std::chrono::microseconds(500);
  static constexpr Duration kBetween = std::chrono::microseconds(100);
  // The core is crowded if the thread had no core for 1/kCrowdedShare of the time.
  static constexpr int kCrowdedShare = 4;
  // Bounds for the number of crowded looks in a row.
  static constexpr int kLeastCrowded = 2;
  static constexpr int kMostCrowded = 5;

  // `seed` is for the random numbers, and must differ between threads that may meet.
  explicit CrowdedWait(uint32_t seed) : random_(seed) {}

  void begin(TimePoint now) {
    next_look_ = is_given_up_ ? TimePoint::max() : now + kUntilFirst;
    waited_.reset();
  }
  // The kernel does not count the time without a core: no look is due any more.
  void give_up() {
    is_given_up_ = true;
    next_look_ = TimePoint::max();
  }
  bool is_due(TimePoint now) const { return now >= next_look_; }
  // A look. `waited`: total time that the thread was ready without a core. True: the
  // core is crowded. Requires: is_due(now).
  [[nodiscard]] bool looked(TimePoint now, Duration waited) {
    next_look_ = now + kBetween;
    const auto before = std::exchange(waited_, waited);
    const TimePoint last = std::exchange(last_look_, now);
    if (!before) {
      draw();
      return false;
    }
    const bool is_crowded = kCrowdedShare * (waited - *before) >= now - last;
    if (!is_crowded) num_left_ = lot_;
    return is_crowded;
  }
  // The look has found a crowded core. True: the thread must leave it.
  [[nodiscard]] bool counts(bool is_another_idle) {
    if (!is_another_idle) num_left_ = lot_;
    if (!is_another_idle || --num_left_ > 0) return false;
    draw();
    return true;
  }

 private:
  void draw() {
    lot_ = std::uniform_int_distribution(kLeastCrowded, kMostCrowded)(random_);
    num_left_ = lot_;
  }

  std::mt19937 random_;
  bool is_given_up_ = false;
  TimePoint next_look_{};
  TimePoint last_look_{};
  std::optional<Duration> waited_;  // at the last look
  int lot_ = kMostCrowded;
  int num_left_ = kMostCrowded;
};

}  // namespace aikido::transport

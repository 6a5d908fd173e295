// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Whether a thread whose wait lasts is to leave its core. Pure; one thread at a time.
//
// Note [woken up on a busy core]
// A sender and a receiver of much data copy at the same time, on two cores. But who
// sleeps in between is woken up where its waker runs if the kernel finds no idle core,
// and a guest finds none whose virtual CPU is halted: then the two take turns on one
// core beside one that is idle, and need twice the time, until the kernel happens to
// look. So who waits for long asks the kernel how long it was ready and had no core. If
// that is a good part of its time again and again, and each time no more threads are
// ready than there are cores, one of these is idle: it leaves its core, and stays away
// from it until the wait is over, since the next one who wakes it up would fetch it
// back, or until it finds a crowd and no idle core (our design). Both must not leave,
// or they meet again: after how many looks is drawn by lot. Short waits do not pay for
// the asking.

#include <optional>
#include <random>
#include <utility>

#include "base/clock.h"

namespace aikido::transport {

class CrowdedWait {
 public:
  // From the begin of a wait to the first look, and between two of them.
  static constexpr Duration kUntilFirst = std::chrono::microseconds(500);
  static constexpr Duration kBetween = std::chrono::microseconds(100);
  // Crowded is a time of which the thread was without a core for a share like this.
  static constexpr int kCrowdedShare = 4;
  // In a row.
  static constexpr int kLeastCrowded = 2;
  static constexpr int kMostCrowded = 5;

  // The lots are drawn from `seed`, which must differ between those who meet.
  explicit CrowdedWait(uint32_t seed) : random_(seed) {}

  void begin(TimePoint now) {
    next_look_ = is_given_up_ ? TimePoint::max() : now + kUntilFirst;
    waited_.reset();
  }
  // Nobody counts how long threads are without a core: no look is due any more.
  void give_up() {
    is_given_up_ = true;
    next_look_ = TimePoint::max();
  }
  bool is_due(TimePoint now) const { return now >= next_look_; }
  // A look: so long has the thread been without a core since it began. True: its core
  // is crowded. Requires: is_due(now).
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
  // The look has found a crowded core. True: the thread is to leave it.
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

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decision if a spinning thread moves to another core. Pure; one thread at a time.
//
// Note [two on a core]
// Threads that spin for each other need one core each. But two of them may come to run
// on one core while another is idle. A wake-up places a thread on its waker's core if
// the kernel finds no idle core. A guest finds none if the idle virtual CPU is halted.
// Then every yield hands the core over, and a message takes two thread switches, three
// times as long. The kernel moves runnable threads at its ticks, every few
// milliseconds, and rarely threads that have just run.
//   Rule (our design): a thread moves after it has handed its core over several times
// in a row. If both threads moved, they would meet again. So the required number is
// random, and threads with equal numbers soon draw again. A move is useless if no core
// is free. So a rest follows each move, and the rest gets longer while moves do not
// help. A core that is lost to a computing thread for a slice of milliseconds is left
// to the kernel. The kernel knows of other idle cores, and this class does not.

#include <algorithm>
#include <cstdint>
#include <random>

#include "base/clock.h"
#include "transport/loop/two_phase_wait.h"

namespace aikido::transport {

class SharedCore {
 public:
  // Shortest yield in which another thread has run. A yield without that takes 0.3 us.
  static constexpr Duration kHandedOver = std::chrono::microseconds(3);
  // Bounds for the number of such yields in a row.
  static constexpr int kLeastHandedOver = 3;
  static constexpr int kMostHandedOver = 10;
  static constexpr Duration kLeastRest = std::chrono::milliseconds(1);
  static constexpr Duration kMostRest = std::chrono::seconds(1);
  // After so many yields in a row without another thread, the next rest is half as
  // long.
  static constexpr int kAlone = 1000;

  // `seed` is for the random numbers, and must differ between threads that may meet.
  explicit SharedCore(uint32_t seed) : random_(seed), lot_(draw()) {}

  // A yield of a spinning thread has taken `took` and ended at `now`. True: the thread
  // must move.
  [[nodiscard]] bool yielded(TimePoint now, Duration took) {
    if (took >= TwoPhaseWait::kSlowYield) {
      handed_over_ = alone_ = 0;
      return false;
    }
    if (took < kHandedOver) {
      handed_over_ = 0;
      if (++alone_ < kAlone) return false;
      alone_ = 0;
      rest_ = std::max(rest_ / 2, kLeastRest);
      return false;
    }
    alone_ = 0;
    if (now < rests_until_ || ++handed_over_ < lot_) return false;
    handed_over_ = 0;
    lot_ = draw();
    rests_until_ = now + rest_;
    rest_ = std::min(2 * rest_, kMostRest);
    return true;
  }

 private:
  int draw() {
    return std::uniform_int_distribution(kLeastHandedOver, kMostHandedOver)(random_);
  }

  std::mt19937 random_;
  int lot_;
  int handed_over_ = 0;
  int alone_ = 0;
  TimePoint rests_until_{};
  Duration rest_ = kLeastRest;
};

}  // namespace aikido::transport

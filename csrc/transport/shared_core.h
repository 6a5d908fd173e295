// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Whether a thread that spins is to move to another core. Pure; one thread at a time.
//
// Note [two on a core]
// Threads that spin for each other need a core each. But two may come to lie on one
// while another is idle: a wake-up puts a thread where its waker runs if it finds no
// idle core, and a guest finds none whose virtual CPU is halted. Then every yield hands
// the core over, and a message takes two changes of threads, the time of three. The
// kernel moves threads that are runnable at its ticks, every few milliseconds, and
// hardly ones that have run just now. So one that has handed its core over several
// times in a row moves (our design). Both of them must not, or they meet again: how
// often is drawn by lot, and those with the same lot draw again soon. Where no core is
// free it is in vain, so there is a rest behind it that gets longer while it does not
// help. Who computes for a slice of milliseconds is left to the kernel, which knows of
// other cores that are idle; a move does not.

#include <algorithm>
#include <cstdint>
#include <random>

#include "base/clock.h"
#include "transport/two_phase_wait.h"

namespace aikido::transport {

class SharedCore {
 public:
  // Longer takes a yield in which somebody else has run: 0.3 us is one without.
  static constexpr Duration kHandedOver = std::chrono::microseconds(3);
  // In a row.
  static constexpr int kLeastHandedOver = 3;
  static constexpr int kMostHandedOver = 10;
  static constexpr Duration kLeastRest = std::chrono::milliseconds(1);
  static constexpr Duration kMostRest = std::chrono::seconds(1);
  // In a row, with the core for itself: the next rest is half as long.
  static constexpr int kAlone = 1000;

  // The lots are drawn from `seed`, which must differ between those who meet.
  explicit SharedCore(uint32_t seed) : random_(seed), lot_(draw()) {}

  // A yield of a thread that spins has taken so long, up to `now`. True: it is to move.
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

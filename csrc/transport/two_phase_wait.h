// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What a thread that waits does next: look again, give its core away and look again, or
// sleep. Pure; one thread at a time.
//
// Note [two phases]
// Who sleeps must be woken up, which takes longer than a small operation: across cores
// 40 us. So it looks first for about as long as that costs, and then sleeps: so it
// takes at most twice the time of a core that it had to (two-phase waiting, the fixed
// spin of A. R. Karlin et al., "Empirical Studies of Competitive Spinning for a
// Shared-Memory Multiprocessor", SOSP 1991). Between two looks it gives its core away;
// where several ranks share one that is all it takes for the others to get on, and
// nobody has been woken up. So looks are counted, and what others do meanwhile is not:
// our design, as is the following. A core may also go to somebody who computes and
// keeps it for a slice of milliseconds, while a sleeper would get it back as soon as it
// is woken up. Behind such a yield waits that are not told to spin sleep at once, for a
// hundred times as long, and for longer where there are more of them: they cost a
// hundredth of the time at most, and little in the long run.

#include <algorithm>

#include "base/clock.h"

namespace aikido::transport {

class TwoPhaseWait {
 public:
  enum class Step { kLook, kYield, kSleep };

  // Looks without anything in them, before a sleep; with a yield 0.6 us each. They must
  // not be over before a peer has been woken up, else both sleep again and again.
  static constexpr int kMostLooks = 100;
  // Longer is a slice of somebody who computes; one that is longer than the most was a
  // halt of this process, and says no more.
  static constexpr Duration kSlowYield = std::chrono::microseconds(500);
  static constexpr Duration kMostYield = std::chrono::milliseconds(10);
  // Behind the first slow yield, and behind many of them.
  static constexpr int kLeastTimesAsLong = 100;
  static constexpr int kMostTimesAsLong = 6400;
  // In a row, that are not slow: the next slow one is the first again.
  static constexpr int kGoodYields = 500;

  // A wait begins. For `spin` after something has happened it does not sleep whatever
  // its yields take.
  void begin(Duration spin) { spin_ = spin; }
  bool spins() const { return spin_ > Duration::zero(); }
  // `did`: there was something in the last look, or this is the first.
  [[nodiscard]] Step next(TimePoint now, bool did) {
    if (did) {
      spins_until_ = now + spin_;
      looks_left_ = kMostLooks;
    }
    if (now >= spins_until_) {
      if (looks_left_ == 0 || now < sleeps_until_) return Step::kSleep;
      --looks_left_;
    }
    return did ? Step::kLook : Step::kYield;
  }
  // A yield has taken so long, up to `now`.
  void yielded(TimePoint now, Duration took) {
    if (took <= kSlowYield) {
      if (good_yields_ < kGoodYields) ++good_yields_;
      if (good_yields_ == kGoodYields) times_as_long_ = kLeastTimesAsLong;
      return;
    }
    good_yields_ = 0;
    sleeps_until_ = now + times_as_long_ * std::min(took, kMostYield);
    times_as_long_ = std::min(4 * times_as_long_, kMostTimesAsLong);
  }

 private:
  Duration spin_{};
  TimePoint spins_until_{};
  TimePoint sleeps_until_{};  // at once
  int looks_left_ = 0;
  int times_as_long_ = kLeastTimesAsLong;
  int good_yields_ = 0;
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Next step of a waiting thread: look again, yield its core and look again, or sleep.
// Pure; one thread at a time.
//
// Note [two phases]
// A sleeping thread must be woken, which takes longer than a small operation: 40 us
// across cores. So a thread looks for about that time first, and sleeps then. It uses
// at most twice the core time that was necessary (two-phase waiting, the fixed spin of
// A. R. Karlin et al., "Empirical Studies of Competitive Spinning for a Shared-Memory
// Multiprocessor", SOSP 1991).
//   The following is our design. Between two looks the thread yields its core. If
// several ranks share a core, that lets the others continue without a wake-up.
// Therefore looks are counted, and the time of the others is not. A computing thread
// may take the core and keep it for a slice of milliseconds, while a sleeping thread
// would get the core as soon as it is woken. After such a slow yield, waits without a
// spin time sleep at once. This lasts for a hundred times the length of the yield, and
// longer if slow yields are frequent. So slow yields cost at most a hundredth of the
// time, and little in the long run.

#include <algorithm>

#include "base/clock.h"

namespace aikido::transport {

class TwoPhaseWait {
 public:
  enum class Step { kLook, kYield, kSleep };

  // Number of looks without success before the thread sleeps. A look with a yield takes
  // 0.6 us. All looks together must take as long as waking a peer does; otherwise both
  // sides sleep in each operation.
  static constexpr int kMostLooks = 100;
  // If a yield takes longer than kSlowYield, a computing thread has used its time
  // slice. A yield that is longer than kMostYield counts as kMostYield: the process was
  // stopped meanwhile.
  static constexpr Duration kSlowYield = std::chrono::microseconds(500);
  static constexpr Duration kMostYield = std::chrono::milliseconds(10);
  // Factors for the sleeping time after the first slow yield, and after many.
  static constexpr int kLeastTimesAsLong = 100;
  static constexpr int kMostTimesAsLong = 6400;
  // After this number of fast yields in a row, the next slow yield counts as the first.
  static constexpr int kGoodYields = 500;

  // Begins a wait. It does not sleep for the time `spin` after an event, even after
  // slow yields.
  void begin(Duration spin) { spin_ = spin; }
  bool spins() const { return spin_ > Duration::zero(); }
  // Returns the next step. `did`: the last look found something, or this is the first
  // look.
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
  // A yield has taken `took` and ended at `now`.
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
  TimePoint sleeps_until_{};  // until then waits sleep at once
  int looks_left_ = 0;
  int times_as_long_ = kLeastTimesAsLong;
  int good_yields_ = 0;
};

}  // namespace aikido::transport

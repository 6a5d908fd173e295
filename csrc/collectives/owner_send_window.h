// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Send window of one owner: how far the bytes sent to the owner may be ahead of the
// bytes that came back, over all calls. Bytes that are further ahead than necessary
// wait in buffers of the owner and of both kernels, and have left the caches when they
// are folded. But the window must cover the way there and back, otherwise links are
// idle. So it follows the amount that waits on the way, which shows in a longer time
// than the shortest known time: the rule of TCP Vegas (Brakmo and Peterson, 1995,
// section 3.2). The smallest window, and the choice of the calls that count, are our
// design. Pure; one thread.

#include <cstddef>

#include "base/clock.h"

namespace aikido::collectives {

class OwnerSendWindow {
 public:
  // In smallest windows: a full window grows by one while less than kFew waits, and
  // shrinks by one if more than kMany waits. Before the first shrink it doubles.
  static constexpr double kFew = 0.25, kMany = 1;
  static constexpr size_t kMostTimes = 64;
  // The shortest time there and back is remembered for this time at least, and for
  // twice this time at most, because the way may become longer.
  static constexpr Duration kMemory = std::chrono::seconds(10);

  // Size of the window, in smallest windows.
  size_t times() const { return times_; }

  // The last sent byte has come back, `took` after it was sent. It was `ahead` at that
  // time, in smallest windows.
  void on_back(double ahead, Duration took, TimePoint now);
  // A call had no more bytes than the window, so nothing shows if the window is too
  // long.
  void on_all_went() { shrink(); }
  // Nothing came back for so long that a call sent all its bytes. The way may take as
  // long.
  void on_still() { grow(1); }

 private:
  void grow(size_t by);
  void shrink();
  Duration least_took(Duration took, TimePoint now);

  size_t times_ = 1;
  bool is_new_ = true;
  Duration least_ = Duration::max();         // shortest time since since_
  Duration least_before_ = Duration::max();  // shortest time in kMemory before since_
  TimePoint since_{};
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How far what a member gives to one owner may be ahead of what has come back from it,
// over all calls. What is further ahead than it has to be waits in buffers of the owner
// and of both kernels, and has left the caches when it is folded; but the window has to
// cover the way there and back, or else links are idle. So it follows what waits on the
// way, which is told by how much longer than ever it took: the rule of TCP Vegas
// (Brakmo and Peterson, 1995, section 3.2). The window that it never falls below, and
// from which calls tell of it, are our design. Pure; one thread.

#include <cstddef>

#include "base/clock.h"

namespace aikido::collectives {

class LeadWindow {
 public:
  // In least windows: a full window grows by one while less than kFew waits, and has
  // one less when more than kMany does; before that it doubles.
  static constexpr double kFew = 0.25, kMany = 1;
  static constexpr size_t kMostTimes = 64;
  // The least time there and back is that of so long at least, and of twice as long at
  // most: the way may get longer.
  static constexpr Duration kMemory = std::chrono::seconds(10);

  // So many times the least window.
  size_t times() const { return times_; }

  // The last of what went has come back, `took` after it went. It was so far ahead
  // then, in least windows.
  void on_back(double ahead, Duration took, TimePoint now);
  // A call had no more than the window. So nothing tells whether it is too long now.
  void on_all_went() { shrink(); }
  // Nothing came back for so long that a call sent all it had. Maybe the way takes as
  // long.
  void on_still() { grow(1); }

 private:
  void grow(size_t by);
  void shrink();
  Duration least_took(Duration took, TimePoint now);

  size_t times_ = 1;
  bool is_new_ = true;
  Duration least_ = Duration::max();         // since since_
  Duration least_before_ = Duration::max();  // in kMemory before that
  TimePoint since_{};
};

}  // namespace aikido::collectives

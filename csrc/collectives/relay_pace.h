// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How fast a rank passes on what it gets, over all broadcasts (our design). What leaves
// a rank goes first into buffers on the way, as fast as memory, so a short time alone
// tells nothing about a link. Several count together: a rank of which nothing else is
// known has never had more to pass on. Pure; one thread.

#include <cstddef>

#include "base/clock.h"

namespace aikido::collectives {

class RelayPace {
 public:
  static constexpr Duration kEnough = std::chrono::milliseconds(4);

  // 0: not known. As it was when last measured, for kEnough without a pause, or so much
  // of times that were shorter.
  double bytes_per_second() const { return bytes_per_second_; }
  // The most bytes that it has passed on without a pause.
  size_t longest() const { return longest_; }

  // So many have left it in the time `busy` since it last had nothing to pass on.
  // `is_over`: it has nothing again.
  void on_passed(size_t bytes, Duration busy, bool is_over);

 private:
  void set(size_t bytes, Duration busy);

  double bytes_per_second_ = 0;
  size_t longest_ = 0;
  // Of the times that were too short.
  size_t short_bytes_ = 0;
  Duration short_busy_{};
};

}  // namespace aikido::collectives

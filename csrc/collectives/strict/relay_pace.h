// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Rate at which a rank passes on its pieces, over all broadcasts (our design). Bytes
// that leave a rank first fill buffers on the way, as fast as memory. So a single short
// time says nothing about the link, but several short times count together: a rank
// about which nothing else is known has never had more to pass on. Pure; one thread.

#include <cstddef>

#include "base/clock.h"

namespace aikido::collectives {

class RelayPace {
 public:
  static constexpr Duration kEnough = std::chrono::milliseconds(4);

  // The last measured rate; 0: not known. It was measured over kEnough without a pause,
  // or over shorter times with that sum.
  double bytes_per_second() const { return bytes_per_second_; }
  // The most bytes that it has passed on without a pause.
  size_t longest() const { return longest_; }

  // `bytes` have left the rank in the time `busy` since it last had nothing to pass on.
  // `is_over`: it has nothing again.
  void on_passed(size_t bytes, Duration busy, bool is_over);

 private:
  void set(size_t bytes, Duration busy);

  double bytes_per_second_ = 0;
  size_t longest_ = 0;
  // Sums of the times that were too short.
  size_t short_bytes_ = 0;
  Duration short_busy_{};
};

}  // namespace aikido::collectives

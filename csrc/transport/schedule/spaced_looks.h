// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Limit of costly looks at a value that may still change: a limited number of looks,
// with a least time between two of them. Pure; one thread.

#include "base/clock.h"

namespace aikido::transport {

class SpacedLooks {
 public:
  // No look.
  SpacedLooks() = default;
  // `num` looks, each at least `apart` after the look before it. The caller has looked
  // at `now`, and this look does not count.
  SpacedLooks(int num, Duration apart, TimePoint now)
      : num_left_(num), apart_(apart), next_(now + apart) {}

  // True if the caller should look now.
  bool take(TimePoint now) {
    if (num_left_ == 0 || now < next_) return false;
    --num_left_;
    next_ = now + apart_;
    return true;
  }
  // No further look is needed.
  void end() { num_left_ = 0; }

 private:
  int num_left_ = 0;
  Duration apart_{};
  TimePoint next_{};
};

}  // namespace aikido::transport

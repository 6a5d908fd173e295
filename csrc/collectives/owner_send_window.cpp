// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/owner_send_window.h"

#include <algorithm>
#include <utility>

namespace aikido::collectives {

Duration OwnerSendWindow::least_took(Duration took, TimePoint now) {
  // Two times are kept in turn, so that a time is forgotten after one to two times
  // kMemory.
  if (now - since_ >= 2 * kMemory) least_ = Duration::max();
  if (now - since_ >= kMemory) {
    least_before_ = std::exchange(least_, Duration::max());
    since_ = now;
  }
  least_ = std::min(least_, took);
  return std::min(least_, least_before_);
}

// Computes the part of the `ahead` bytes that waited: the measured time beyond the
// shortest known time, in proportion.
void OwnerSendWindow::on_back(double ahead, Duration took, TimePoint now) {
  took = std::max(took, Duration(1));
  const std::chrono::duration<double> least = least_took(took, now);
  const double waited = ahead * (1 - least / took);
  if (waited < kFew && ahead >= static_cast<double>(times_)) {
    grow(is_new_ ? times_ : 1);
  } else if (waited > kMany) {
    is_new_ = false;
    shrink();
  }
}

void OwnerSendWindow::grow(size_t by) {
  times_ = std::min(times_ + by, kMostTimes);
}

void OwnerSendWindow::shrink() {
  times_ = std::max<size_t>(times_ - 1, 1);
}

}  // namespace aikido::collectives

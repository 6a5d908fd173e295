// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/relay_pace.h"

#include <algorithm>

namespace aikido::collectives {

void RelayPace::on_passed(size_t bytes, Duration busy, bool is_over) {
  longest_ = std::max(longest_, bytes);
  // Short busy periods are added up until they are long enough to measure.
  if (busy >= kEnough) return set(bytes, busy);
  if (!is_over) return;
  short_bytes_ += bytes;
  short_busy_ += busy;
  if (short_busy_ >= kEnough) set(short_bytes_, short_busy_);
}

void RelayPace::set(size_t bytes, Duration busy) {
  bytes_per_second_ =
      static_cast<double>(bytes) / std::chrono::duration<double>(busy).count();
  short_bytes_ = 0;
  short_busy_ = Duration::zero();
}

}  // namespace aikido::collectives

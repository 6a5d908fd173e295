// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/owner_watch.h"

#include <algorithm>

namespace aikido::straggler {

void OwnerWatch::on_lag(uint64_t bytes, Duration lag) {
  auto& window = lags_[size_class(bytes)];
  if (!window) window = std::make_unique<DurationWindow>();
  window->push(std::clamp(lag, Duration::zero(), options_.ceiling));
}

Duration OwnerWatch::deadline(uint64_t bytes, Duration took) const {
  Duration patience = took;
  const auto& window = lags_[size_class(bytes)];
  if (window && window->size() >= options_.warmup_operations) {
    const auto lags = window->sorted();
    const auto usual = static_cast<double>(lags[(lags.size() - 1) * 19 / 20].count());
    const double scaled = kHeadRoom * options_.slack * usual;
    if (scaled < static_cast<double>(took.count()))
      patience = std::max(took / kLeastPart, Duration(static_cast<int64_t>(scaled)));
  }
  return std::clamp(patience, options_.floor / kFloorPart, options_.ceiling);
}

}  // namespace aikido::straggler

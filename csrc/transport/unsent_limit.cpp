// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/unsent_limit.h"

#include <algorithm>
#include <utility>

namespace aikido::transport {

void UnsentLimit::on_full(TimePoint now) {
  since_ = now;
  taken_ = 0;
}

std::optional<size_t> UnsentLimit::on_taken(size_t bytes, TimePoint now) {
  taken_ += bytes;
  const Duration took = now - since_;
  if (took <= Duration::zero() || (taken_ < kSampleBytes && took < kSampleTime))
    return std::nullopt;
  const double rate =
      static_cast<double>(std::exchange(taken_, 0)) / static_cast<double>(took.count());
  since_ = now;
  const double worth = rate * static_cast<double>(kWorth.count());
  const auto asked =
      static_cast<size_t>(std::clamp(worth, double{kLeast}, double{kMost}));
  if (asked < 2 * limit_ && limit_ < 2 * asked) return std::nullopt;
  limit_ = asked;
  return limit_;
}

}  // namespace aikido::transport

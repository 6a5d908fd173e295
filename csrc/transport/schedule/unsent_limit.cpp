// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/unsent_limit.h"

#include <algorithm>
#include <utility>

namespace aikido::transport {

void UnsentLimit::on_full(TimePoint now) {
  since_ = now;
  taken_ = 0;
  ran_dry_ = false;
}

std::optional<size_t> UnsentLimit::on_taken(size_t bytes, bool ran_dry, TimePoint now) {
  taken_ += bytes;
  ran_dry_ |= ran_dry;
  const Duration took = now - since_;
  if (took <= Duration::zero() || (taken_ < kSampleBytes && took < kSampleTime))
    return std::nullopt;
  const double rate =
      static_cast<double>(std::exchange(taken_, 0)) / static_cast<double>(took.count());
  since_ = now;
  const double worth = rate * static_cast<double>(kWorth.count());
  auto asked = static_cast<size_t>(std::clamp(worth, double{kLeast}, double{kMost}));
  // The rate was that of this process and not that of the link, so the limit grows.
  if (std::exchange(ran_dry_, false))
    asked = std::min(kMost, std::max(asked, 2 * limit_));
  // Small changes are not worth a system call.
  if (asked < 2 * limit_ && limit_ < 2 * asked) return std::nullopt;
  limit_ = asked;
  return limit_;
}

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/rebalance.h"

#include <algorithm>

#include "base/check.h"

namespace aikido::straggler {

void Rebalance::on_operation(std::span<const TimePoint> arrivals,
                             const RankSet& owners) {
  AIKIDO_CHECK(arrivals.size() == members_.size(), arrivals.size(), " arrivals of ",
               members_.size());
  const auto [first, last] = std::minmax_element(arrivals.begin(), arrivals.end());
  const TimePoint start = *first;
  if (start < counted_until_) return;
  counted_until_ = *last;
  const int32_t g = owners.count();
  for (size_t r = 0; r < arrivals.size(); ++r) {
    const bool sends_more = g > 1 && !owners.contains(Rank(static_cast<int32_t>(r)));
    const Duration took = arrivals[r] - start;
    scaled_[r] = sends_more ? took / g * (g - 1) : took;
  }
  std::vector<Duration> sorted = scaled_;
  std::sort(sorted.begin(), sorted.end());
  const Duration usual = sorted[sorted.size() / 2];
  const Duration whole = sorted.back();
  for (size_t r = 0; r < members_.size(); ++r) {
    LateRecord& m = members_[r];
    const Duration lag = std::max(scaled_[r] - usual, Duration::zero());
    const bool is_late = lag > std::max(whole / 100 * kLatePercent, kShortest);
    const bool is_in_time = lag < whole / 100 * kInTimePercent || lag < kShortest;
    if (whole >= kShortest) m.late = m.late << 1 | std::bitset<kLast>(is_late ? 1 : 0);
    if (is_late) {
      m.in_time = 0;
    } else if (is_in_time) {
      ++m.in_time;
    }
  }
}

}  // namespace aikido::straggler

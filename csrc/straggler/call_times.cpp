// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/call_times.h"

#include <algorithm>

namespace aikido::straggler {

void CallTimes::on_called(Rank rank, TimePoint now) {
  if (called_.insert(rank)) in_order_.emplace_back(rank, now);
}

TimePoint CallTimes::time_of(Rank rank) const {
  return std::find_if(in_order_.begin(), in_order_.end(),
                      [&](const auto& one) { return one.first == rank; })
      ->second;
}

TimePoint CallTimes::time_of_call(int32_t quorum) const {
  return in_order_[static_cast<size_t>(quorum) - 1].second;
}

Duration CallTimes::time_left(Rank rank, Duration deadline, int32_t quorum,
                              TimePoint t_q) const {
  const TimePoint c_q = time_of_call(quorum);
  const TimePoint late_at = c_q + std::max(deadline, (t_q - c_q) / kLeastPart);
  if (!called_.contains(rank))
    return std::clamp(late_at - t_q, Duration::zero(), deadline);
  const auto later = in_order_.begin() + quorum;
  const bool is_late = std::any_of(later, in_order_.end(), [&](const auto& one) {
    return one.first == rank && one.second > late_at;
  });
  return is_late ? Duration::zero() : deadline;
}

}  // namespace aikido::straggler

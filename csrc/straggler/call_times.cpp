// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/call_times.h"

#include <algorithm>

namespace aikido::straggler {

void CallTimes::on_called(Rank rank, TimePoint now) {
  if (!called_.insert(rank)) return;
  if (called_.count() == quorum_) c_q_ = now;
  if (called_.count() > quorum_) later_.emplace_back(rank, now);
}

Duration CallTimes::time_left(Rank rank, Duration deadline, TimePoint t_q) const {
  const TimePoint late_at = c_q_ + std::max(deadline, (t_q - c_q_) / kLeastPart);
  if (!called_.contains(rank))
    return std::clamp(late_at - t_q, Duration::zero(), deadline);
  const bool is_late = std::any_of(later_.begin(), later_.end(), [&](const auto& one) {
    return one.first == rank && one.second > late_at;
  });
  return is_late ? Duration::zero() : deadline;
}

}  // namespace aikido::straggler

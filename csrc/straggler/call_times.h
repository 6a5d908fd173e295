// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// When the members have called one operation, and what that says of contributions that
// are missing (our design). One thread, no clock.
//
// Note [late by its call]
// A deadline counts from t_q, when K contributions are here. Where a contribution takes
// long to send, who is late is known before that: c_q is the time of the K-th call, and
// one that calls later than its deadline after c_q comes that much after t_q, too. Then
// nobody waits for it at t_q, and for one that has not called until c_q and its
// deadline. Calls come behind other bytes, and where links are slow not at the same
// time everywhere: so one is late by its call only if it is so by a part of what the
// contributions themselves have taken, whatever its deadline is.

#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"

namespace aikido::straggler {

class CallTimes {
 public:
  // Of what K contributions took from c_q to t_q.
  static constexpr int kLeastPart = 2;

  explicit CallTimes(int32_t world_size) : called_(world_size) {
    in_order_.reserve(static_cast<size_t>(world_size));
  }

  // `rank` is known to have called. A second time changes nothing.
  void on_called(Rank rank, TimePoint now);

  bool has_called(Rank rank) const { return called_.contains(rank); }

  // Requires: it has called.
  TimePoint time_of(Rank rank) const;

  // c_q for K = `quorum`. Requires: so many have called.
  TimePoint time_of_call(int32_t quorum) const;

  // For how long after `t_q` one is waited for whose contribution is missing and that
  // may be late by `deadline`: at most that. Requires: `quorum` members have called,
  // and `t_q` is not before that.
  Duration time_left(Rank rank, Duration deadline, int32_t quorum, TimePoint t_q) const;

 private:
  RankSet called_;
  std::vector<std::pair<Rank, TimePoint>> in_order_;
};

}  // namespace aikido::straggler

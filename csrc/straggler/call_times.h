// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Times of the members' calls of one operation, and their meaning for missing
// contributions (our design). One thread, no clock.
//
// Note [late by its call]
// A deadline counts from t_q, when K contributions have arrived. If contributions take
// long to send, late members are known earlier. c_q is the time of the K-th call. A
// member that calls later than c_q plus its deadline also arrives that much after t_q.
// So nobody waits for it at t_q. A member that has not called gets time until c_q plus
// its deadline.
//   Notices of calls travel behind other bytes. On slow links they do not arrive
// everywhere at the same time. Therefore a member is late by its call only if its lag
// also exceeds a part of the time that the contributions took. This holds for each
// deadline.

#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"

namespace aikido::straggler {

class CallTimes {
 public:
  // Part of the time from c_q to t_q that a lag must exceed.
  static constexpr int kLeastPart = 2;

  explicit CallTimes(int32_t world_size) : called_(world_size) {
    in_order_.reserve(static_cast<size_t>(world_size));
  }

  // `rank` is known to have called. A second notice changes nothing.
  void on_called(Rank rank, TimePoint now);

  bool has_called(Rank rank) const { return called_.contains(rank); }

  // Requires: `rank` has called.
  TimePoint time_of(Rank rank) const;

  // c_q for K = `quorum`. Requires: that many members have called.
  TimePoint time_of_call(int32_t quorum) const;

  // Time after `t_q` that the owner waits for the missing contribution of `rank`, at
  // most `deadline`. Requires: `quorum` members have called, and `t_q` is not before
  // that.
  Duration time_left(Rank rank, Duration deadline, int32_t quorum, TimePoint t_q) const;

 private:
  RankSet called_;
  std::vector<std::pair<Rank, TimePoint>> in_order_;
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Lags of the last calls of each member, after half of the members had called. They
// show if a lateness is new or the rest of an earlier one (our design). One thread, no
// clock.
//
// Note [rest of a lateness]
// A stalled member finds its result ready when it calls, but continues later than the
// others. So it also calls the next operation late, without having been slow again.
// That second lateness is smaller. Rule: each of two calls was late by more than
// `least`, and the second by at most half of the first; then the second says nothing
// new about the member. In contrast, a member behind a slow link calls in time, or
// later and later.

#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "base/types.h"

namespace aikido::straggler {

class CallLags {
 public:
  static constexpr size_t kNumRecent = 64;

  explicit CallLags(int32_t world_size);

  // `rank` is known to have called `seq`, and so all operations before it. Repeated
  // news changes nothing.
  void on_called(Rank rank, Seq seq, TimePoint now);

  // True if `seq` is the last call of `rank`, and its lag is only the rest of the
  // lateness of the call before. Lags up to `least` do not count as late.
  bool is_rest(Rank rank, Seq seq, Duration least) const;

 private:
  struct Operation {
    Seq seq;  // 0: free
    int32_t num_called = 0;
    TimePoint half{};  // time when half of the members had called
  };
  struct LastCalls {
    Seq last;
    Duration lag{0}, before{0};  // of the last call, and of the call before
  };

  int32_t world_size_;
  std::vector<Operation> recent_;  // operation seq is at seq % kNumRecent
  std::vector<LastCalls> members_;
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How much later than half of the members each has called its last operations: it tells
// what is left of a lateness from a new one (our design).
//
// Note [what is left of a lateness]
// One that has stalled finds its result ready when it calls, but goes on later than the
// others, and so calls the next operation late, too, without having been slow again. It
// has become less: where each call was late by more than `least`, but by half of the
// one before at most, the second says nothing new of the member. One behind a slow link
// calls in time, or later and later.
//
// One thread, no clock.

#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "base/types.h"

namespace aikido::straggler {

class CallLags {
 public:
  static constexpr size_t kNumRecent = 64;

  explicit CallLags(int32_t world_size);

  // `rank` is known to have called `seq`, and so all before it. What is known already
  // changes nothing.
  void on_called(Rank rank, Seq seq, TimePoint now);

  // Whether `seq` is the last that `rank` has called, as late as is left of the
  // lateness, beyond `least`, of the one before.
  bool is_rest(Rank rank, Seq seq, Duration least) const;

 private:
  struct Operation {
    Seq seq;  // 0: free
    int32_t num_called = 0;
    TimePoint half{};  // when half of the members had called
  };
  struct Member {
    Seq last;
    Duration lag{0}, before{0};  // of the last call, and of the one before
  };

  int32_t world_size_;
  std::vector<Operation> recent_;  // operation seq is at seq % kNumRecent
  std::vector<Member> members_;
};

}  // namespace aikido::straggler

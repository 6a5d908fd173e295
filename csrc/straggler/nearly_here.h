// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Look at the progress of missing contributions when a wait would end (Note [nearly
// here at the end] in skip.h): the members that are nearly here, and the end of the
// longer wait for them. Pure; one thread.

#include <algorithm>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/types.h"

namespace aikido::straggler {

class NearlyHere {
 public:
  explicit NearlyHere(int32_t world_size) : members_(world_size) {}

  // The owner looks once at the end of each wait.
  bool has_looked() const { return has_looked_; }
  void note_look() { has_looked_ = true; }
  // Another wait begins. The members that were nearly here stay so.
  void begin_wait() { has_looked_ = false; }

  // The contribution of `rank` is expected at `arrival`. The owner waits `slack` times
  // the rest of that time, but not beyond `longest`, if `arrival` is not beyond it.
  void expect(Rank rank, TimePoint arrival, TimePoint now, double slack,
              TimePoint longest) {
    if (arrival > longest) return;
    members_.insert(rank);
    const Duration rest = std::max(arrival - now, Duration::zero());
    until_ = std::max(until_, std::min(now + scaled(rest, slack), longest));
  }
  // End of a wait that would end at `end`, with these arrivals.
  TimePoint extended(TimePoint end, const RankSet& arrived) const {
    return arrived.covers(members_) ? end : std::max(end, until_);
  }

 private:
  RankSet members_;
  TimePoint until_{};
  bool has_looked_ = false;
};

}  // namespace aikido::straggler

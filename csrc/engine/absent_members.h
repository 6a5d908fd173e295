// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Members of a group that the view excludes: since when, and which of them are expected
// back. Progress thread, no clock.
//
// Note [stopped is late]
// A member whose process is stopped does not answer a view change. So it is excluded,
// while a member that only computes stays in the view. For the user both are late
// ranks. Rule: until the excluded member has been silent for heartbeat.timeout_ms, the
// others treat it like a late member. They keep its results, and do not leave before it
// has them. It misses no more operations in a row, and no more bytes of results, than
// the policy allows.
//   An owner cannot wait for the contribution of an excluded member. So this member
// holds its next call back, before any other member learns of it. The absent member
// rejoins from the first operation that no member knows, so it takes part in the held
// call.
//   A member that was refused is not waited for either. It needs a state, which the
// others give only between their calls.
//   With on_log_full="exclude" a member may be excluded although it answers. Then the
// others neither hold calls back for it nor wait for it before they leave.

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/types.h"
#include "engine/peers.h"
#include "membership/view_change.h"

namespace aikido::engine {

class AbsentMembers {
 public:
  // `self` is one of `size` ranks. A member is expected back for `timeout`.
  AbsentMembers(Rank self, int32_t size, Duration timeout);

  // `view` takes effect. All members have everything up to operation `received_by_all`.
  // Returns the members that are back after `timeout` or more.
  RankSet on_view(const membership::View& view, uint64_t received_by_all,
                  TimePoint now);
  // Operation up to which `rank` had everything when it was excluded. 0: it never was.
  uint64_t return_floor(Rank rank) const {
    return past_[static_cast<size_t>(rank.value)].return_floor;
  }
  // Excluded members that were excluded less than `timeout` ago, can be reached, and
  // need no state. See Note [stopped is late].
  RankSet expected_back(const membership::ViewChange& change, const Peers& peers,
                        TimePoint now) const;

 private:
  // Facts about a member in addition to the view.
  struct Past {
    bool was_member = true;
    uint64_t return_floor = 0;
    TimePoint out_since{};  // time of the last exclusion
  };

  const Rank self_;
  const Duration timeout_;
  std::vector<Past> past_;  // by rank
};

}  // namespace aikido::engine

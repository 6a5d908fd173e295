// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The view that a coordinator proposes. Pure: follows from the old view and what its
// members say.

#include <map>

#include "membership/view_message.h"

namespace aikido::membership {

struct ViewPlan {
  std::map<Rank, Report> answers;  // of members of the old view: those of the new one
  std::map<Rank, Report> joining;  // of those that are to come back
  RankSet moved;                   // own nothing from here on
  RankSet restored;                // own shards of operations to come again
};

// Requires: at least one answer, all from members of `old`.
//
// - A result that some member has stays: a holder of it becomes owner of the shard, the
//   old owner first and one that is moved last.
// - Shards that nobody has keep their owner if it is a member and not moved.
// - Operations that nobody has heard of are cut anew, for the owners there are now.
View next_view(const View& old, const ViewPlan& plan);

}  // namespace aikido::membership

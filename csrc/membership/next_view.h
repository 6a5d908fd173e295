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

// Who of those that have answered would wait for ever in a view of these: none of them
// can send a result that it lacks, and nobody makes it again, because one has passed it
// over, whose state follows from it, or has had it and forgotten it while the one that
// waits was out. Out of the view it comes back when somebody is in that can send what
// it lacks, or copies a state as well.
RankSet waiting_in_vain(const View& old, const std::map<Rank, Report>& answers);

// Requires: at least one answer, all from members of `old`.
//
// - Who would wait in vain is left out, if the others are more than half of `old`.
// - A result that some member has stays: a holder of it becomes owner of the shard, the
//   old owner first and one that is moved last.
// - Shards that nobody has keep their owner if it is a member and not moved; else all
// of
//   the owners get a part of it, where it is large enough.
// - Operations that nobody has heard of are cut anew, for the owners there are now.
View next_view(const View& old, const ViewPlan& plan);

}  // namespace aikido::membership

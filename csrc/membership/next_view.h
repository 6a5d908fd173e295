// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Computation of the view that a coordinator proposes. Pure: depends on the old view
// and the reports of its members only.

#include <map>

#include "membership/view_message.h"

namespace aikido::membership {

struct ViewPlan {
  std::map<Rank, Report> answers;  // of members of the old view that stay members
  std::map<Rank, Report> joining;  // of members that rejoin
  RankSet moved;                   // members that own nothing from now on
  RankSet restored;                // members that own shards of new operations again
  bool agrees = false;             // the set of its members is a new agreement
};

// Members among `answers` that would wait for ever in a view of exactly these members.
// Such a member lacks a result that no other of them can send or compute again. That is
// so if another member has skipped through the result by a state copy, and its state
// follows from the result. It is also so if another member has received and forgotten
// the result while the waiting member was excluded. Outside of the view the waiting
// member rejoins when a member is in that can send the result, or copies a state as
// well.
RankSet waiting_in_vain(const View& old, const std::map<Rank, Report>& answers);

// Computes the next view. Requires: at least one answer, all from members of `old`.
//
// - A member that waits for a result which no member can send is excluded, if the
//   others have more than half of the votes of `old`.
// - A result that some member has received stays: a holder becomes owner of the shard,
//   the old owner first and a moved member last.
// - A shard whose result no member has received keeps its owner if that owner is a
//   member and not moved. Otherwise, if the shard is large enough, all owners get a
//   part of it.
// - Operations that no member knows yet are divided anew, among the present owners.
View next_view(const View& old, const ViewPlan& plan);

}  // namespace aikido::membership

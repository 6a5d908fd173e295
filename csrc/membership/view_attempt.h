// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Attempt of a coordinator to make the next view, from the answers of the members.
// Pure: depends on its arguments only. One thread.

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "membership/member_doubts.h"
#include "membership/view_message.h"

namespace aikido::membership {

struct ViewAttempt {
  struct Answer {
    Report report;
    std::optional<AcceptedView> accepted;
  };

  Ballot ballot;
  std::map<Rank, Answer> answers;
  std::optional<View> proposed;
  bool is_followed = false;  // a member would wait in vain in the proposed view
  RankSet accepted;
  TimePoint started{};
  TimePoint majority_at{};    // time when more than half had answered
  Rank asked_last = kNoRank;  // excluded member whose answer is needed after all
  TimePoint asked_at{};       // time of that request

  std::map<Rank, Report> reports() const;
  // Ranks that have answered.
  RankSet answered(int32_t size) const;
  // The answered view that was accepted with the highest ballot; null: none. A majority
  // may have accepted it, so it must be proposed again.
  const AcceptedView* accepted_before() const;
  // See Note [suspect without exposed results] in view_change.h. `withheld`: of the
  // coordinator; ascending.
  bool can_spare(const View& view, Rank rank, const std::vector<Seq>& withheld) const;
  // True if the member to be excluded was not asked, but the others need its results.
  bool lacks_excluded(const View& view, const MemberDoubts& doubts) const;
};

// kProtocol if two members are further apart than members of a group of this size can
// be. A plan visits all operations that are open on any member, so a report that claims
// more of them is refused before.
Status check_reach(Rank from, const Report& theirs, Rank self, const Report& ours,
                   size_t num_members);

}  // namespace aikido::membership

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Answers about the calls of a group: calls that cannot end, members that are waited
// for, and room for results. It reads the parts of the group and changes nothing.
// Progress thread.

#include <cstdint>

#include "engine/group_facts.h"

namespace aikido::engine {

class CallOutlook {
 public:
  explicit CallOutlook(const GroupFacts& facts) : facts_(facts) {}

  // ---- calls that cannot end
  // Reason why a skippable operation cannot end any more. Ok: it can.
  Status hopeless(const collectives::SkippableOperation& operation) const;
  // This member has no vote and reaches no voter of its view. Note [members without a
  // vote]
  bool is_stranded() const;
  // Error of a call that has lasted for `after`, which is its time-out.
  Status time_out(const collectives::Operation& operation, Duration after) const;
  // True if every operation in progress has enough members without `rank`.
  bool can_spare(Rank rank) const;

  // ---- members that wait
  // Excluded members that are expected back. Note [stopped is late] (absent_members.h)
  RankSet expected_back() const;
  // Absent member for which no further result can be kept, beginning with that of
  // `operation`. kNoRank: there is none.
  Rank held_back_for(const collectives::Operation& operation) const;
  // Others have called operations that cannot end without this member: a strict call,
  // or this member has missed as much as a policy allows. The others compute the same.
  bool is_waited_for() const;
  // This member's contributions were cut off repeatedly. Its data is likely to become
  // useless before it leaves, so it goes to the kernel in small parts (Uplink::note).
  // Doing so in all calls would cost a wake-up per part, a tenth of a step, and would
  // keep a returning member late.
  bool is_cut_off() const;
  // This member is in the view, and all its members except `except` have all results up
  // to `seq` that this member has. Then `except` may get a state with them.
  bool is_acked(Seq seq, Rank except) const;

  // Bytes that the results of an operation count in the log: as much as a member that
  // has not called it admits from one holder (receive_window.h).
  uint64_t charge_of(const collectives::Operation& operation) const;

 private:
  const GroupFacts facts_;
};

}  // namespace aikido::engine

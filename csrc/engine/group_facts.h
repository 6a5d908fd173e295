// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Parts of a group, for classes that only read them. Progress thread.

#include "base/clock.h"
#include "engine/absent_members.h"
#include "engine/call_table.h"
#include "engine/group_options.h"
#include "engine/lifecycle.h"
#include "engine/own_state.h"
#include "engine/peers.h"
#include "engine/policy_table.h"
#include "engine/result_keeper.h"
#include "engine/skipped_calls.h"
#include "engine/watermarks.h"
#include "membership/view_change.h"

namespace aikido::engine {

struct GroupFacts {
  const Clock& clock;
  const GroupOptions& options;
  const Watermarks& marks;
  const Peers& peers;
  const CallTable& calls;
  const PolicyTable& policies;
  const membership::ViewChange& view_change;
  const OwnState& own_state;
  const AbsentMembers& absent;
  const ResultKeeper& keeper;
  const SkippedCalls& skipped;
  const Lifecycle& life;

  const membership::View& view() const { return view_change.view(); }
};

}  // namespace aikido::engine

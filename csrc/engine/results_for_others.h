// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Results and failures of ended skippable calls that the local member of a group keeps
// for other members: how long it keeps them, and to which members it reports a failure
// again. Progress thread.

#include <cstdint>
#include <memory>

#include "engine/absent_members.h"
#include "engine/call_outlook.h"
#include "engine/group_options.h"
#include "engine/lifecycle.h"
#include "engine/own_state.h"
#include "engine/peers.h"
#include "engine/result_keeper.h"
#include "engine/skipped_calls.h"
#include "engine/watermarks.h"
#include "membership/view_change.h"

namespace aikido::engine {

class ResultsForOthers {
 public:
  // Parts of the group. They outlive this object, and may be built after it.
  struct Parts {
    const GroupOptions* options;
    const Watermarks* marks;
    Peers* peers;
    const membership::ViewChange* view_change;
    const OwnState* own_state;
    const AbsentMembers* absent;
    const Lifecycle* life;
    const CallOutlook* outlook;
    SkippedCalls* skipped;
  };
  explicit ResultsForOthers(const Parts& parts) : parts_(parts) {}

  const ResultKeeper& keeper() const { return keeper_; }
  // Keeps the result of an ended operation. Returns false if no other member can ask
  // for it.
  bool keep(const std::shared_ptr<collectives::SkippableOperation>& operation);
  // A failed operation counts as acknowledged, but has no result. A member that has not
  // called it does not know if it may skip.
  void note_failed(uint64_t seq, const Status& why);
  // Reports the failures again, in a new view.
  void tell_failed();
  // Forgets results that all members have. For excluded members that may return,
  // results are kept within the limit of the log.
  void trim();
  // Releases everything: the results belong to an earlier membership.
  void clear() { keeper_.clear(); }

 private:
  const Parts parts_;
  ResultKeeper keeper_;
};

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Roles of the ranks of a group, and agreements on its members, for the owner of a
// group. It refers to parts of the group, and has no state of its own. Progress thread,
// except agree_on_members().

#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/lifecycle.h"
#include "engine/own_state.h"
#include "engine/peers.h"
#include "membership/view_change.h"

namespace aikido::engine {

class Communicator;

class Votes {
 public:
  struct Parts {
    const Clock* clock;
    Rank self;
    const Peers* peers;
    const OwnState* own_state;
    const Lifecycle* life;
    membership::ViewChange* view_change;
  };
  explicit Votes(const Parts& parts) : parts_(parts) {}

  // As membership::ViewChange::set_roles().
  void set_roles(const RankSet& reliable) { parts_.view_change->set_roles(reliable); }

  // Begins an agreement on the members, also after calls have failed. A rank in `lost`
  // is asked again, and excluded if it does not answer.
  void agree(const std::vector<Rank>& lost);
  bool is_agreeing() const { return parts_.view_change->agreement().is_wanted(); }
  // The agreement, once; or the reason why there can be none: kPeerLost if too few
  // voters are left or this member is excluded, otherwise the reason of the end of the
  // group. nullopt: not known yet.
  std::optional<Result<membership::Agreement>> agreement();
  // Ends the wait for the agreement. kTimedOut with the voters.
  Status give_up(Duration after);

 private:
  Parts parts_;
};

// Agrees with the other members of the group on the members that are left. Blocks for
// at most `timeout`, and for a turn of the progress thread. Errors: as agreement() and
// give_up(). Any thread except the progress thread.
Result<membership::Agreement> agree_on_members(Communicator& communicator,
                                               const std::vector<Rank>& lost,
                                               Duration timeout);

}  // namespace aikido::engine

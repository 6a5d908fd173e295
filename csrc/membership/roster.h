// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Who is to be in the next view of a group, as every member computes it for itself from
// the same handles: sizes, ranks, addresses, and the tokens that let the members in to
// each other. Pure and immutable. Any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "membership/handle.h"
#include "transport/handshake.h"

namespace aikido::membership {

enum class Order {
  kGiven,   // the first handle is rank 0
  kCommon,  // any, the same on every member
};

class Roster {
 public:
  // `uuid` numbers the attempt; `self` is this member. kInvalidArgument when a handle
  // is none, when two are of one member, or when `self` is not among them.
  static Result<Roster> make(int64_t uuid, std::vector<std::string> handles,
                             Order order, const Handle& self);

  int64_t uuid() const { return uuid_; }
  Rank self() const { return self_; }
  int32_t size() const { return static_cast<int32_t>(members_.size()); }
  const Handle& member(Rank rank) const {
    return members_[static_cast<size_t>(rank.value)];
  }

  // Note [tokens of a roster]
  // What a member of this roster shows at the door of `host`: the secret of `host` (16
  // bytes), the uuid (8), a fingerprint of the members and their order (8). Who was not
  // given that handle cannot guess it; members that were given other handles or another
  // uuid are not let in. A process that listens where a dead member did is shown
  // nothing but that member's secret, which opens no door any more: the fingerprint is
  // over ids and addresses, and so needs no strong hash.
  transport::Token token(Rank host) const;

 private:
  Roster(int64_t uuid, Rank self, std::vector<Handle> members);

  int64_t uuid_;
  Rank self_;
  std::vector<Handle> members_;
  uint64_t fingerprint_;
};

}  // namespace aikido::membership

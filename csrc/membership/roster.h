// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Roster of the next group: sizes, ranks, addresses, and the tokens with which members
// admit each other. Every member computes it from the same handles. Pure and immutable.
// Any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/rank_set.h"
#include "base/status.h"
#include "membership/handle.h"
#include "transport/handshake.h"

namespace aikido::membership {

enum class Order {
  kGiven,   // the first handle is rank 0
  kCommon,  // any order that is equal on every member
};

class Roster {
 public:
  // `uuid` numbers the attempt; `self` is this member. kInvalidArgument if a handle is
  // malformed, if two handles are of one member, or if `self` is not among them.
  static Result<Roster> make(int64_t uuid, std::vector<std::string> handles,
                             Order order, const MemberHandle& self);

  int64_t uuid() const { return uuid_; }
  Rank self() const { return self_; }
  int32_t size() const { return static_cast<int32_t>(members_.size()); }
  // Ranks of the reliable members.
  RankSet reliable() const;
  const MemberHandle& member(Rank rank) const {
    return members_[static_cast<size_t>(rank.value)];
  }

  // Note [tokens of a roster]
  // A member must not connect to a group of another roster. Rule: a member of this
  // roster shows a token to `host`, made of the secret of `host` (16 bytes), the uuid
  // (8) and a fingerprint of the members and their order (8). Why it is safe: a process
  // without the handle cannot guess the token, and members with other handles or
  // another uuid are not admitted. A process that listens at the address of a dead
  // member sees only that member's secret, which is of no use any more. The fingerprint
  // covers ids and addresses, and so needs no strong hash.
  transport::Token token(Rank host) const;

 private:
  Roster(int64_t uuid, Rank self, std::vector<MemberHandle> members);

  int64_t uuid_;
  Rank self_;
  std::vector<MemberHandle> members_;
  uint64_t fingerprint_;
};

}  // namespace aikido::membership

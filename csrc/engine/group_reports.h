// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Reports of the local member of a group about its calls and results, and comparisons
// with the report of a member that rejoins. It reads the parts of the group and changes
// nothing. Progress thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/group_facts.h"
#include "membership/view_change.h"

namespace aikido::engine {

class GroupReports final : public membership::MemberReports {
 public:
  explicit GroupReports(const GroupFacts& facts) : facts_(facts) {}

  membership::Report report() const override;
  void note_calls(membership::Report& report) const override;
  std::vector<Seq> withheld() const override;
  // True if enough other members have called the open operations, enough remain for the
  // next one, and the results for an absent member fit into the log.
  bool can_do_without(Rank rank) const override;
  // A returning member must not have exposed a result that differs from the results
  // here.
  std::optional<Status> compare(Rank rank,
                                const membership::Report& report) const override;

  // Highest operation up to which all members have everything: it is not kept here, not
  // in progress and not failed here.
  uint64_t received_by_all() const;
  // End of a sentence about an excluded member: how it can take part again. `is_cut`: a
  // connection is broken. Then no state helps inside this group.
  std::string way_back(bool is_cut) const;

 private:
  std::vector<membership::ReceivedShard> received_from(uint64_t seq) const;
  bool is_too_much(const membership::Report& report) const;

  const GroupFacts facts_;
};

}  // namespace aikido::engine

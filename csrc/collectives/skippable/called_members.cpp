// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/called_members.h"

#include <algorithm>

namespace aikido::collectives {

int32_t CalledMembers::num_called() const {
  int32_t called = 0;
  int32_t backups = 0;    // backups that have called
  int32_t uncovered = 0;  // data shards that backups can cover
  const RankSet& participants = shards_.participants();
  if (call_.policy.has_stand_ins())
    shards_.wanted().for_each(
        [&](Rank r) { uncovered += participants.contains(r) ? 0 : 1; });
  participants.for_each([&](Rank r) {
    if (has_called(r)) ++(shards_.is_backup(r) ? backups : called);
  });
  return called + std::min(backups, uncovered);
}

bool CalledMembers::on_called(Rank rank, TimePoint now) {
  if (fewest_at_ && now - *fewest_at_ > call_.policy.floor) late_.insert(rank);
  if (has_quorum_) return false;
  const int32_t called = num_called();
  if (!fewest_at_ && called >= straggler::fewest_of(call_.policy, host_->size()))
    fewest_at_ = now;
  has_quorum_ = called >= straggler::quorum_of(call_.policy, host_->size());
  return has_quorum_;
}

}  // namespace aikido::collectives

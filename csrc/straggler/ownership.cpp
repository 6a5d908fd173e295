// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/ownership.h"

namespace aikido::straggler {

Ownership::Ownership(int32_t world_size)
    : owners_(RankSet::full(world_size)), members_(static_cast<size_t>(world_size)) {}

// The wait doubles for each failure after the first.
uint32_t Ownership::doublings(Rank rank) const {
  return std::min(std::max(1u, member(rank).num_failures) - 1, kMaxDoublings);
}

uint64_t Ownership::operations_to_trial() const {
  return uint64_t{kTrialCost} * kTrialMargin * members_.size();
}

bool Ownership::has_waited(Rank rank, const Now& now, uint32_t quarters) const {
  const uint64_t operations = operations_to_trial() << doublings(rank);
  const Duration time = kTrialAfter * (1 << doublings(rank));
  return 4 * held(rank, now) >= operations * quarters &&
         4 * (now.time - member(rank).since.time) >= time * quarters;
}

std::vector<Ownership::Change> Ownership::on_owners(const RankSet& owners,
                                                    const Now& now) {
  std::vector<Change> changes;
  for (int32_t r = 0; r < owners.world_size(); ++r) {
    const Rank rank(r);
    if (owners.contains(rank) == owners_.contains(rank)) continue;
    Tenure& m = members_[static_cast<size_t>(r)];
    if (owners_.contains(rank))
      m.num_failures = has_waited(rank, now) ? 1 : m.num_failures + 1;
    m.since = now;
    changes.push_back({rank, owners.contains(rank)});
  }
  owners_ = owners;
  return changes;
}

bool Ownership::is_late(Rank rank, const Seen& seen, bool gains) const {
  if (seen.is_slow && gains) return true;
  const Advice advice = member(rank).advice;
  if (advice != Advice::kNone) return advice == Advice::kLink;
  return seen.skips_in_a_row >= kLateRun;
}

bool Ownership::may_return(Rank rank, const Now& now, const Seen& seen) const {
  const Advice advice = member(rank).advice;
  if (seen.is_slow || advice == Advice::kLink) return false;
  if (advice == Advice::kCaller && seen.keeps_up) return true;
  // Operations before the move do not count.
  const uint64_t in_time = std::min<uint64_t>(seen.healthy_run, held(rank, now));
  if (in_time >= uint64_t{kReturnAfter} << doublings(rank)) return true;
  if (!seen.keeps_up) return false;
  switch (seen.uplink) {
    case Suits::kYes:
      return has_waited(rank, now, 1);
    case Suits::kNo:
      return has_waited(rank, now, 16);
    case Suits::kUnknown:
      return has_waited(rank, now, 8);
  }
  return false;
}

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/ownership.h"

namespace aikido::straggler {

Ownership::Ownership(int32_t world_size)
    : owners_(RankSet::full(world_size)), members_(static_cast<size_t>(world_size)) {}

// Twice as long for each failure after the first.
uint64_t Ownership::wait(const Member& m) {
  return uint64_t{kReturnAfter}
         << std::min(std::max(1u, m.num_failures) - 1, kMaxDoublings);
}

std::vector<Ownership::Change> Ownership::on_owners(const RankSet& owners, Seq now) {
  std::vector<Change> changes;
  for (int32_t r = 0; r < owners.world_size(); ++r) {
    const Rank rank(r);
    if (owners.contains(rank) == owners_.contains(rank)) continue;
    Member& m = members_[static_cast<size_t>(r)];
    if (owners_.contains(rank)) {
      const bool has_lasted = held(rank, now) >= wait(m);
      m.num_failures = has_lasted ? 1 : m.num_failures + 1;
    }
    m.since = now;
    changes.push_back({rank, owners.contains(rank)});
  }
  owners_ = owners;
  return changes;
}

bool Ownership::is_late(Rank rank, Seq now, const Seen& seen, bool gains) const {
  // What it missed as one that owned nothing does not count.
  if (std::min<uint64_t>(seen.skips_in_a_row, held(rank, now)) >= kLateRun) return true;
  return seen.is_slow && gains;
}

bool Ownership::may_return(Rank rank, Seq now, const Seen& seen) const {
  if (seen.is_slow) return false;
  const Member& m = member(rank);
  const uint64_t out = held(rank, now);
  // What it was in before it was moved does not count.
  return out >= wait(m) && (seen.keeps_up || seen.healthy_run >= wait(m));
}

}  // namespace aikido::straggler

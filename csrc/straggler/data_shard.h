// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Roles of members with backups. A group has n = N + b members: the first N are
// primaries and the last b are backups. Data shard d is the work of primary d. So a set
// of data shards is a set of ranks that uses the first N ranks only. With
// BackupMode::kNPlusB every member has a data shard, and nobody stands in for another
// member. A *stand-in* is the contribution of a backup that counted for a data shard.
//
// Pure; any thread.

#include <cstdint>
#include <optional>
#include <span>

#include "base/rank_set.h"
#include "base/status.h"
#include "base/types.h"
#include "straggler/policy.h"

namespace aikido::straggler {

// A data shard, and the backup whose contribution counted for it.
struct StandIn {
  Rank data_shard;
  Rank backup;
  friend auto operator<=>(const StandIn&, const StandIn&) = default;
};

// Data shard of a backup that fits any data shard, and of a caller that names none.
inline constexpr int32_t kAnyDataShard = -1;

// Requires, of all of these: validated options.
inline bool is_backup(const PolicyOptions& options, Rank rank, int32_t world_size) {
  return options.has_stand_ins() && rank.value >= world_size - options.backups;
}

// All data shards that a result may contain.
RankSet data_shards(const PolicyOptions& options, int32_t world_size);

// Data shards that a result may contain with these members: those of present primaries,
// and as many others as there are backups.
RankSet wanted(const PolicyOptions& options, const RankSet& members);

// Data shards that the backups have computed in one operation, in the order of their
// ranks. nullopt: the backup has not announced its data shard.
using SaidDataShards = std::span<const std::optional<int32_t>>;

// Largest possible number of contributions. A higher quorum is never reached. A backup
// fills one hole; a backup that has announced its data shard fills that hole only.
int32_t most_contributions(const PolicyOptions& options, const RankSet& members,
                           SaidDataShards said = {});

// Smallest m such that any m members together have a quorum of data shards. Backups may
// have computed the same data shards as other members; such duplicates do not count.
int32_t members_of_quorum(const PolicyOptions& options, int32_t world_size);

// Data shard that `rank` contributes, from its caller's value `said`: its own data
// shard, that of a backup, or kAnyDataShard with BackupMode::kSubstitute.
// kInvalidArgument with a sentence if the caller must pass another value.
Result<int32_t> data_shard_of(const PolicyOptions& options, Rank rank,
                              int32_t world_size, int32_t said);

}  // namespace aikido::straggler

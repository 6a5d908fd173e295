// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Who computes what where some members are backups. Of n = N + b members the first N
// are primaries and the last b backups. Data shard d is what primary d computes, so a
// set of data shards is a set of ranks in which only the first N are used; with
// BackupMode::kNPlusB everybody has a data shard, and nobody stands in for anybody. A
// *stand-in* is the contribution of a backup that counted for a data shard.
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

// What a backup says that fits any data shard, and who says nothing.
inline constexpr int32_t kAnyDataShard = -1;

// Requires, of all of these: validated options.
inline bool is_backup(const PolicyOptions& options, Rank rank, int32_t world_size) {
  return options.has_stand_ins() && rank.value >= world_size - options.backups;
}

// The data shards that a result may be of, all in all.
RankSet data_shards(const PolicyOptions& options, int32_t world_size);

// Those that it may be of with these members: of primaries that are there, and of as
// many others as there are backups.
RankSet wanted(const PolicyOptions& options, const RankSet& members);

// What is known of what the backups have computed in one operation, in the order of
// their ranks, if at all: empty where one has not said so.
using SaidDataShards = std::span<const std::optional<int32_t>>;

// How many of them there can be at the most: a quorum above it is never reached. A
// backup fills one hole, and one that has said so no other than that.
int32_t most_contributions(const PolicyOptions& options, const RankSet& members,
                           SaidDataShards said = {});

// The least number of members that have a quorum among them whoever they are, whatever
// the backups among them have computed: it may be what others of them have.
int32_t members_of_quorum(const PolicyOptions& options, int32_t world_size);

// What `rank` contributes, made of what its caller says: its own data shard, that of a
// backup, or kAnyDataShard with BackupMode::kSubstitute. kInvalidArgument with a
// sentence where the caller must say something else.
Result<int32_t> data_shard_of(const PolicyOptions& options, Rank rank,
                              int32_t world_size, int32_t said);

}  // namespace aikido::straggler

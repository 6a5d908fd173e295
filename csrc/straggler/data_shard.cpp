// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/data_shard.h"

#include <algorithm>

#include "base/mutation.h"

namespace aikido::straggler {

RankSet data_shards(const PolicyOptions& options, int32_t world_size) {
  RankSet all(world_size);
  const int32_t num = num_data_shards(options, world_size);
  for (int32_t d = 0; d < num; ++d) all.insert(Rank(d));
  return all;
}

RankSet wanted(const PolicyOptions& options, const RankSet& members) {
  if (!options.has_stand_ins()) return members;
  const int32_t size = members.world_size();
  const int32_t num = num_data_shards(options, size);
  RankSet wanted(size);
  int32_t backups = 0;
  members.for_each([&](Rank r) {
    if (r.value < num)
      wanted.insert(r);
    else
      ++backups;
  });
  const bool is_fixed = options.backup_mode == BackupMode::kReplicate;
  for (int32_t d = 0; d < num; ++d) {
    if (wanted.contains(Rank(d))) continue;
    const bool has_backup = is_fixed ? members.contains(Rank(num + d)) : backups-- > 0;
    if (has_backup) wanted.insert(Rank(d));
  }
  return wanted;
}

int32_t most_contributions(const PolicyOptions& options, const RankSet& members,
                           SaidDataShards said) {
  if (!options.has_stand_ins()) return members.count();
  const int32_t num = num_data_shards(options, members.world_size());
  RankSet filled(members.world_size());
  int32_t free = 0;  // backups that may fill any hole, as far as known
  members.for_each([&](Rank r) {
    if (r.value < num) {
      filled.insert(r);
      return;
    }
    std::optional<int32_t> d;
    if (!said.empty()) d = said[static_cast<size_t>(r.value - num)];
    if (options.backup_mode == BackupMode::kReplicate) d = r.value - num;
    if (d.value_or(kAnyDataShard) == kAnyDataShard) {
      ++free;
    } else {
      filled.insert(Rank(*d));
    }
  });
  return std::min(filled.count() + free, num);
}

int32_t members_of_quorum(const PolicyOptions& options, int32_t world_size) {
  const int32_t quorum = quorum_of(options, world_size);
  const bool is_free = options.backup_mode == BackupMode::kSubstitute;
  if (!options.has_stand_ins() || is_free || quorum == 1) return quorum;
  // One data shard less than a quorum, plus as many duplicates as possible.
  const bool is_fixed = options.backup_mode == BackupMode::kReplicate;
  const int32_t most = is_fixed ? quorum - 1 : options.backups;
  if (mutated(Mutation::kBackupIsMember)) return quorum;
  return quorum + std::min(most, options.backups);
}

Result<int32_t> data_shard_of(const PolicyOptions& options, Rank rank,
                              int32_t world_size, int32_t said) {
  const auto refuse = [&](const std::string& what) {
    return Status(
        Code::kInvalidArgument,
        concat("argument data_shard is ", said == kAnyDataShard ? "None" : concat(said),
               " on rank ", rank.value, what));
  };
  const int32_t num = num_data_shards(options, world_size);
  const bool has_said = said != kAnyDataShard;
  if (!options.has_stand_ins()) {
    if (has_said)
      return refuse(
          "; only a policy ActiveBackup with backups that stand in for others takes "
          "one");
    return rank.value;
  }
  if (has_said && (said < 0 || said >= num))
    return refuse(
        concat(", but there are data shards 0 to ", num - 1, ", one for each primary"));
  if (!is_backup(options, rank, world_size)) {
    if (has_said && said != rank.value)
      return refuse(
          concat(", a primary, whose data shard is ", rank.value, ": leave it out"));
    return rank.value;
  }
  switch (options.backup_mode) {
    case BackupMode::kSubstitute:
      if (has_said)
        return refuse(
            ", a backup with mode=\"substitute\", whose data fit any data "
            "shard: leave it out");
      return kAnyDataShard;
    case BackupMode::kReplicate:
      if (has_said && said != rank.value - num)
        return refuse(concat(", a backup with mode=\"replicate\", whose data shard is ",
                             rank.value - num, ": leave it out"));
      return rank.value - num;
    case BackupMode::kShadow:
    case BackupMode::kNPlusB:
      break;
  }
  if (!has_said)
    return refuse(concat(", a backup: say whose data it has computed, 0 to ", num - 1));
  return said;
}

}  // namespace aikido::straggler

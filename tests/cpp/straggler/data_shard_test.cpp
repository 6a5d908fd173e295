// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/data_shard.h"

#include <string>

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::skip_options;

PolicyOptions backed_up(int32_t backups, BackupMode mode = BackupMode::kShadow) {
  PolicyOptions options = skip_options();
  options.backups = backups;
  options.backup_mode = mode;
  return options;
}

RankSet set_of(int32_t size, std::initializer_list<int32_t> ranks) {
  RankSet set(size);
  for (const int32_t r : ranks) set.insert(Rank(r));
  return set;
}

TEST_CASE("data shards belong to the primaries, with n_plus_b to all members") {
  CHECK(data_shards(backed_up(2), 5) == set_of(5, {0, 1, 2}));
  CHECK(data_shards(backed_up(2, BackupMode::kNPlusB), 5) == RankSet::full(5));
  CHECK(data_shards(skip_options(), 3) == RankSet::full(3));
  CHECK_FALSE(is_backup(backed_up(2), Rank(2), 5));
  CHECK(is_backup(backed_up(2), Rank(3), 5));
  CHECK_FALSE(is_backup(backed_up(2, BackupMode::kNPlusB), Rank(3), 5));
}

TEST_CASE("the wanted data shards are one for each present primary and backup") {
  const PolicyOptions one = backed_up(1);
  CHECK(wanted(one, RankSet::full(4)) == set_of(4, {0, 1, 2}));
  CHECK(wanted(one, set_of(4, {1, 2, 3})) == set_of(4, {0, 1, 2}));
  CHECK(wanted(one, set_of(4, {2, 3})) == set_of(4, {0, 2}));
  CHECK(wanted(one, set_of(4, {1, 2})) == set_of(4, {1, 2}));
  CHECK(most_contributions(one, set_of(4, {2, 3})) == 2);
  const PolicyOptions each = backed_up(2, BackupMode::kReplicate);
  CHECK(wanted(each, set_of(4, {1, 3})) == set_of(4, {1}));
  CHECK(wanted(each, set_of(4, {1, 2})) == set_of(4, {0, 1}));
  CHECK(wanted(skip_options(), set_of(4, {1, 3})) == set_of(4, {1, 3}));
  CHECK(most_contributions(skip_options(), set_of(4, {1, 3})) == 2);
}

TEST_CASE("a backup that has named its data shard fills no other hole") {
  using Said = std::vector<std::optional<int32_t>>;
  const RankSet left = set_of(5, {0, 3, 4});  // of three primaries and two backups
  const auto most = [&](const Said& said, BackupMode mode = BackupMode::kShadow) {
    return most_contributions(backed_up(2, mode), left, said);
  };
  CHECK(most({std::nullopt, std::nullopt}) == 3);
  CHECK(most({0, std::nullopt}) == 2);
  CHECK(most({0, 0}) == 1);
  CHECK(most({1, 1}) == 2);
  CHECK(most({1, 2}) == 3);
  CHECK(most({1, std::nullopt}) == 3);
  CHECK(most({kAnyDataShard, kAnyDataShard}, BackupMode::kSubstitute) == 3);
  // A report about a lost backup does not count.
  CHECK(most_contributions(backed_up(2), set_of(5, {0, 4}), Said{1, 0}) == 1);
  CHECK(most_contributions(backed_up(2), RankSet::full(5), Said{1, 1}) == 3);
  const PolicyOptions each = backed_up(2, BackupMode::kReplicate);
  CHECK(most_contributions(each, set_of(4, {1, 3}), Said(2)) == 1);
  CHECK(most_contributions(each, set_of(4, {1, 2}), Said(2)) == 2);
}

TEST_CASE("a set of members has a quorum, whatever its backups have computed") {
  for (const BackupMode mode : {BackupMode::kShadow, BackupMode::kSubstitute,
                                BackupMode::kNPlusB, BackupMode::kReplicate}) {
    for (const auto& [size, backups, quorum] :
         {std::tuple(4, 1, 1), {4, 1, 2}, {5, 1, 3}, {6, 2, 3}, {4, 2, 2}, {6, 3, 2}}) {
      PolicyOptions options = backed_up(backups, mode);
      options.min_contributors = quorum;
      const int32_t num = size - backups;
      // The largest set of members that may have no quorum.
      int32_t largest = 0;
      for (uint32_t bits = 0; bits < (1u << size); ++bits) {
        RankSet members(size);
        for (int32_t r = 0; r < size; ++r)
          if ((bits >> r & 1) != 0) members.insert(Rank(r));
        int32_t least = most_contributions(options, members);
        for (int32_t d = 0; mode == BackupMode::kShadow && d < num; ++d) {
          const std::vector<std::optional<int32_t>> said(static_cast<size_t>(backups),
                                                         d);
          least = std::min(least, most_contributions(options, members, said));
        }
        if (least < quorum_of(options, size))
          largest = std::max(largest, members.count());
      }
      INFO(size << " members, " << backups << " backups, " << quorum << " needed");
      CHECK(members_of_quorum(options, size) == largest + 1);
    }
  }
  CHECK(members_of_quorum(skip_options(), 5) == quorum_of(skip_options(), 5));
}

TEST_CASE("only a backup names the data shard that it has computed") {
  const auto of = [](const PolicyOptions& options, int32_t rank, int32_t said) {
    auto result = data_shard_of(options, Rank(rank), 4, said);
    return *result;
  };
  CHECK(of(backed_up(1), 1, kAnyDataShard) == 1);
  CHECK(of(backed_up(1), 1, 1) == 1);
  CHECK(of(backed_up(1), 3, 2) == 2);
  CHECK(of(backed_up(1, BackupMode::kSubstitute), 3, kAnyDataShard) == kAnyDataShard);
  CHECK(of(backed_up(2, BackupMode::kReplicate), 3, kAnyDataShard) == 1);
  CHECK(of(backed_up(2, BackupMode::kReplicate), 3, 1) == 1);
  CHECK(of(backed_up(1, BackupMode::kNPlusB), 3, kAnyDataShard) == 3);
  CHECK(of(skip_options(), 3, kAnyDataShard) == 3);
}

TEST_CASE("a wrong data shard is refused, and the error names the right one") {
  const auto why = [](const PolicyOptions& options, int32_t rank, int32_t said) {
    const auto result = data_shard_of(options, Rank(rank), 4, said);
    REQUIRE_FALSE(result.is_ok());
    CHECK(result.status().code() == Code::kInvalidArgument);
    return result.status().message();
  };
  CHECK(why(backed_up(1), 3, 3) ==
        "argument data_shard is 3 on rank 3, but there are data shards 0 to 2, one for "
        "each primary");
  CHECK(why(backed_up(1), 1, 2) ==
        "argument data_shard is 2 on rank 1, a primary, whose data shard is 1: leave "
        "it out");
  CHECK(why(backed_up(1), 3, kAnyDataShard) ==
        "argument data_shard is None on rank 3, a backup: say whose data it has "
        "computed, 0 to 2");
  CHECK(why(backed_up(1, BackupMode::kSubstitute), 3, 0) ==
        "argument data_shard is 0 on rank 3, a backup with mode=\"substitute\", whose "
        "data fit any data shard: leave it out");
  CHECK(why(backed_up(2, BackupMode::kReplicate), 3, 0) ==
        "argument data_shard is 0 on rank 3, a backup with mode=\"replicate\", whose "
        "data shard is 1: leave it out");
  CHECK(why(skip_options(), 1, 1) ==
        "argument data_shard is 1 on rank 1; only a policy ActiveBackup with backups "
        "that stand in for others takes one");
}

}  // namespace
}  // namespace aikido::straggler

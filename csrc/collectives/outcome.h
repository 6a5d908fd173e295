// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Outcome of an operation for its caller. Lateness is a value here, never an error. A
// plain value, usable on any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/types.h"
#include "straggler/data_shard.h"

namespace aikido::collectives {

enum class OutcomeKind : uint8_t { kComplete, kPartial, kAborted };

// Outcome of one shard. With backups, contributors and skipped are data shards, and so
// primaries: a backup is in neither list.
struct ShardOutcome {
  Rank owner;
  std::vector<Rank> contributors;  // ascending
  double scale = 1.0;              // factor of the sum; not used by a weighted call
  // Data shards in `contributors` that came from a backup, ascending.
  std::vector<straggler::StandIn> stand_ins;
  // Range of elements of the tensor.
  uint64_t first_element = 0;
  uint64_t num_elements = 0;
  // Sum of the contributors' weights; empty if the call was not weighted.
  std::optional<double> weight{};
};

// Part of a result without the contribution of the primary of a data shard.
struct Hole {
  Rank data_shard;
  Rank backup;         // backup that contributed instead; kNoRank: no backup
  uint64_t bytes = 0;  // of the tensor
  friend bool operator==(const Hole&, const Hole&) = default;
};

struct Outcome {
  OutcomeKind kind = OutcomeKind::kComplete;
  Seq seq;
  // Empty unless the call could skip. For a reduce_scatter: the own shard, and shards
  // of owners that have announced to be without this member.
  std::vector<ShardOutcome> shards;
  // Longest deadline that an owner gave to skipped members, from its quorum on, in
  // whole microseconds, and the reason of the close. Zero and empty for complete
  // results. Equal on all ranks that were in the view all the time.
  Duration deadline{};
  std::string reason;
  Duration duration{};           // from the call to the result
  uint64_t cancelled_bytes = 0;  // of the own late contribution, not sent
  bool was_committed = false;    // the result had arrived before this member called

  // Members that are in every shard, and members missing in at least one; ascending.
  std::vector<Rank> contributors;
  std::vector<Rank> skipped;
  // Stand-ins of all shards, ascending, each once.
  std::vector<straggler::StandIn> stand_ins;
  // With backups: members outside of the view in which the operation was new,
  // ascending. Like all fields here it is equal on all members.
  std::vector<Rank> out;
  // Owners of shards without this member's contribution, ascending. For a
  // reduce_scatter: owners that had announced it when the call ended.
  std::vector<Rank> skipped_by;
  // Sum of the contributors' weights. If the shards differ, the smallest of their sums;
  // for a reduce_scatter, that of the own shard. Empty if the call was not weighted.
  std::optional<double> weight{};
  // For an aborted call: members that it was still waiting for; ascending.
  std::vector<Rank> missing;
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How an operation ended for its caller: lateness is a value here, never an error. A
// plain value: any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/types.h"
#include "straggler/data_shard.h"

namespace aikido::collectives {

enum class OutcomeKind : uint8_t { kComplete, kPartial, kAborted };

// Where some members are backups, contributors and skipped are data shards, and so
// primaries: a backup is in neither.
struct ShardOutcome {
  Rank owner;
  std::vector<Rank> contributors;  // ascending
  double scale = 1.0;              // what the sum was multiplied by
  // Of those in `contributors` the data shards that came from a backup, ascending.
  std::vector<straggler::StandIn> stand_ins;
  // Which elements of the tensor these are.
  uint64_t first_element = 0;
  uint64_t num_elements = 0;
};

// What of a result holds no contribution of the primary of a data shard.
struct Hole {
  Rank data_shard;
  Rank backup;         // whose contribution counted in its place; kNoRank: nobody's
  uint64_t bytes = 0;  // of the tensor
  friend bool operator==(const Hole&, const Hole&) = default;
};

struct Outcome {
  OutcomeKind kind = OutcomeKind::kComplete;
  Seq seq;
  // Empty unless the call could skip. Of a reduce_scatter: the own one, and those of
  // owners that have said that this member is not in theirs.
  std::vector<ShardOutcome> shards;
  // The longest that an owner gave those that it left out, from its quorum on, in whole
  // microseconds, and why it closed; zero and empty of complete results. The same on all
  // ranks that were in the view meanwhile.
  Duration deadline{};
  std::string reason;
  Duration duration{};  // from the call to the result
  uint64_t cancelled_bytes =
      0;                       // of the own contribution, not sent because it was late
  bool was_committed = false;  // the result was there before this member called

  // Members that are in every shard, and those missing in at least one; ascending.
  std::vector<Rank> contributors;
  std::vector<Rank> skipped;
  // Those of all shards, ascending, each once.
  std::vector<straggler::StandIn> stand_ins;
  // Where some members are backups: those that were out of the view in which this was
  // new, ascending, and as all other things here the same on all members.
  std::vector<Rank> out;
  // Owners of shards without this member's contribution, ascending. Of a
  // reduce_scatter: those that had said so when it ended.
  std::vector<Rank> skipped_by;
  // Of an aborted call: the members that it was still waiting for; ascending.
  std::vector<Rank> missing;
};

}  // namespace aikido::collectives

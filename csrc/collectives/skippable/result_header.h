// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Result header: the message of a shard's owner with its result. It has the mask, and
// the reason not to wait for the others. PROTOCOL.md has the bytes. Pure; any thread.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/status.h"
#include "collectives/call.h"
#include "collectives/outcome.h"
#include "straggler/decision.h"

namespace aikido::collectives {

struct ResultHeader {
  RankSet mask;
  straggler::Reason reason = straggler::Reason::kComplete;
  Duration deadline{};  // rounded by told_deadline()
  // Data shards of the mask that came from backups, ascending.
  std::vector<straggler::StandIn> stand_ins{};
  // Members excluded from the view in which the operation was new (Cut::out),
  // ascending, as many as there is room for. Present with backups only: they choose by
  // this list which primary to shadow.
  std::vector<Rank> out{};
  // Sum of the contributors' weights; empty if the call is not weighted.
  std::optional<double> weight{};
};

// Deadline of the policy as its frame carries it: rounded down to whole microseconds,
// and limited to 32 bits. The owner uses the same value for its own shard, so the
// outcome is equal on all ranks.
Duration told_deadline(Duration chosen);

struct OwnedResultHeader {
  Rank owner;
  ResultHeader header;
  // Range of elements of the tensor.
  uint64_t first_element = 0;
  uint64_t num_elements = 0;
};
// Outcome of a call for `self`, in a group of `size`, from the headers of its shards:
// kind, shards, skipped members and reason.
Outcome outcome_of(const Call& call, Rank self, int32_t size,
                   std::span<const OwnedResultHeader> shards);

// Holes of a call with this outcome, ascending, each pair of data shard and backup
// once. Requires: some members are backups.
std::vector<Hole> holes_of(const Call& call, int32_t size, const Outcome& outcome);

std::vector<std::byte> encode_result_header(const ResultHeader& header);
// kProtocol with a sentence if the bytes are no header in a group of `size` with
// `num_data_shards` data shards. `is_weighted`: of a weighted call.
Result<ResultHeader> decode_result_header(std::span<const std::byte> bytes,
                                          int32_t size, int32_t num_data_shards,
                                          bool is_weighted = false);
// Number of stand-ins that fit into the first frame of a result. The remaining room is
// for excluded members.
size_t max_stand_ins(const Call& call, int32_t size);

}  // namespace aikido::collectives

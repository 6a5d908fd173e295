// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What the owner of a shard says with its result: who is in it, and why it did not wait
// for the others. PROTOCOL.md has the bytes. Pure; any thread.

#include <cstddef>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/status.h"
#include "collectives/call.h"
#include "collectives/outcome.h"
#include "straggler/decision.h"

namespace aikido::collectives {

struct Verdict {
  RankSet mask;
  straggler::Reason reason = straggler::Reason::kComplete;
  Duration deadline{};  // as told_deadline() has it
  // Of the mask: what came from backups, ascending.
  std::vector<straggler::StandIn> stand_ins{};
  // Members that were out of the view in which the operation was new (Cut::out),
  // ascending, as many as there is room for; said where some members are backups, which
  // choose by it whose data they compute.
  std::vector<Rank> out{};
};

// A deadline that the policy chose, as its frame has it: in whole microseconds, not
// more, and at most what 32 bits hold. The owner says the same of its own shard, so
// that the outcome is equal on all ranks.
Duration told_deadline(Duration chosen);

struct OwnedVerdict {
  Rank owner;
  Verdict verdict;
  // Of which elements of the tensor.
  uint64_t first_element = 0;
  uint64_t num_elements = 0;
};
// How a call ended for `self`, of a group of `size`, by what the owners of its shards
// said: kind, shards, who was left out and why.
Outcome outcome_of(const Call& call, Rank self, int32_t size,
                   std::span<const OwnedVerdict> shards);

// Requires: some members are backups. The holes of a call that ended so, ascending,
// each data shard and backup once.
std::vector<Hole> holes_of(const Call& call, int32_t size, const Outcome& outcome);

std::vector<std::byte> encode_verdict(const Verdict& verdict);
// kProtocol with a sentence when the bytes are none of a group of `size` with so many
// data shards.
Result<Verdict> decode_verdict(std::span<const std::byte> bytes, int32_t size,
                               int32_t num_data_shards);
// How many stand-ins fit into the first frame of a result, and what they leave is room
// for members that are out.
size_t max_stand_ins(const Call& call, int32_t size);

}  // namespace aikido::collectives

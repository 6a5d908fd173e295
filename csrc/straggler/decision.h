// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What a policy answers: wait, or close the shard with the contributions that are here,
// and why. A plain value: any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/types.h"

namespace aikido::straggler {

enum class Verdict : uint8_t { kWait, kClose };

enum class Reason : uint8_t {
  // Close.
  kComplete,      // every member has arrived
  kDeadline,      // the deadlines of all missing members have passed
  kExpectedLate,  // waiting for those missing has not paid before: deadline zero
  kKnownBehind,   // those missing have not even called an earlier operation
  kHalf,          // only half are here, and the quorum has not come in time (skip.h)
  // Wait.
  kWaitsForAll,     // the policy skips nobody
  kNoQuorum,        // fewer than min_contributors have arrived
  kWithinDeadline,  // a missing member has time left
  kWarmingUp,       // too little is known of a missing member: it has up to the ceiling
  kLimiter,         // a missing member was skipped as often in a row as is allowed
  // Either.
  kLogFull,      // the log of results kept for a missing member has no room left
  kReEntry,      // a member that was skipped started late and is granted one wait
  kWaitingPays,  // skipping has lost progress, so the owner waits for all for a while
};

// "known_behind" and the like, as logs, the trace and Python print it.
std::string_view name_of(Reason reason);

struct Decision {
  Verdict verdict = Verdict::kWait;
  Reason reason = Reason::kNoQuorum;
  // The longest deadline of those missing, counted from the quorum (with kHalf from
  // when half were here): the most that this operation is delayed. 0 without a quorum,
  // when complete, and when nothing but an arrival can end the wait (kWaitsForAll,
  // kLimiter, kLogFull).
  Duration deadline{0};
  // The missing member that the reason is about; kNoRank when complete or no quorum.
  Rank rank = kNoRank;
  int32_t num_arrived = 0;
  int32_t world_size = 0;

  bool closes() const { return verdict == Verdict::kClose; }
  friend bool operator==(const Decision&, const Decision&) = default;
};

// One sentence for the log, with the numbers.
std::string explain(const Decision& decision);

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Answer of a policy: wait, or close the shard with the contributions that have
// arrived; always with a reason. A plain value, usable on any thread.

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
  kExpectedLate,  // waiting for the missing members has not paid before: deadline zero
  kKnownBehind,   // the missing members have not even called an earlier operation
  kHalf,          // only half have arrived, and the quorum did not follow in time
  // Wait.
  kWaitsForAll,     // the policy skips nobody
  kNoQuorum,        // fewer than min_contributors have arrived
  kWithinDeadline,  // a missing member has time left
  kWarmingUp,       // too little is known of a missing member: it has up to the ceiling
  kLimiter,         // a missing member has reached the limit on skips in a row
  // Either.
  kLogFull,      // the log of results kept for a missing member has no room left
  kReEntry,      // a skipped member started late and is granted one longer wait
  kWaitingPays,  // skipping has lost progress, so the owner waits for all for a while
};

// Text form such as "known_behind", used in logs, traces and Python.
std::string_view name_of(Reason reason);

struct Decision {
  Verdict verdict = Verdict::kWait;
  Reason reason = Reason::kNoQuorum;
  // Longest deadline of the missing members, counted from the quorum; with kHalf,
  // counted from the arrival of half of the members. This bounds the delay of the
  // operation. 0 without a quorum, if complete, and if only an arrival can end the wait
  // (kWaitsForAll, kLimiter, kLogFull).
  Duration deadline{0};
  // The missing member that causes the reason; kNoRank if complete or without a quorum.
  Rank rank = kNoRank;
  int32_t num_arrived = 0;
  int32_t world_size = 0;

  bool closes() const { return verdict == Verdict::kClose; }
  friend bool operator==(const Decision&, const Decision&) = default;
};

// One sentence for the log, with the numbers.
std::string explain(const Decision& decision);

}  // namespace aikido::straggler

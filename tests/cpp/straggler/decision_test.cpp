// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/decision.h"

#include <set>

#include "harness/catch.h"

namespace aikido::straggler {
namespace {

struct Row {
  Verdict verdict;
  Reason reason;
  const char* name;
  const char* sentence;
};

TEST_CASE("every decision is one sentence with its numbers") {
  const Row rows[] = {
      {Verdict::kClose, Reason::kComplete, "complete",
       "closes with 3 of 4: all have arrived."},
      {Verdict::kClose, Reason::kDeadline, "deadline",
       "closes with 3 of 4: rank 2 did not come within 20.0 ms of the quorum."},
      {Verdict::kClose, Reason::kExpectedLate, "expected_late",
       "closes with 3 of 4: rank 2 is late so often that waiting for it costs more."},
      {Verdict::kClose, Reason::kKnownBehind, "known_behind",
       "closes with 3 of 4: rank 2 has not called an earlier operation yet."},
      {Verdict::kClose, Reason::kHalf, "half",
       "closes with 3 of 4: no other one came within 20.0 ms."},
      {Verdict::kWait, Reason::kWaitsForAll, "waits_for_all",
       "waits with 3 of 4: rank 2 is missing and the policy skips nobody."},
      {Verdict::kWait, Reason::kNoQuorum, "no_quorum",
       "waits with 3 of 4: no quorum yet."},
      {Verdict::kWait, Reason::kWithinDeadline, "within_deadline",
       "waits with 3 of 4: rank 2 has until 20.0 ms after the quorum."},
      {Verdict::kWait, Reason::kWarmingUp, "warming_up",
       "waits with 3 of 4: too few arrivals of rank 2 are known, it has until 20.0 ms "
       "after the quorum."},
      {Verdict::kWait, Reason::kLimiter, "limiter",
       "waits with 3 of 4: rank 2 was skipped max_consecutive_skips times in a row and "
       "must be in."},
      {Verdict::kWait, Reason::kLogFull, "log_full",
       "waits with 3 of 4: the log of results kept for rank 2 is full, so it must be "
       "in."},
  };
  std::set<std::string> names;
  for (const Row& row : rows) {
    const Decision decision{row.verdict, row.reason, from_ms(20), Rank(2), 3, 4};
    CHECK(explain(decision) == row.sentence);
    CHECK(name_of(row.reason) == row.name);
    names.insert(std::string(name_of(row.reason)));
  }
  CHECK(names.size() == std::size(rows));
}

}  // namespace
}  // namespace aikido::straggler

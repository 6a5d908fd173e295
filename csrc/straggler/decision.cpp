// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/decision.h"

#include <cstdio>

#include "base/check.h"

namespace aikido::straggler {
namespace {

std::string ms(Duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", to_ms(d));
  return text;
}

}  // namespace

std::string_view name_of(Reason reason) {
  switch (reason) {
    case Reason::kComplete:
      return "complete";
    case Reason::kDeadline:
      return "deadline";
    case Reason::kExpectedLate:
      return "expected_late";
    case Reason::kKnownBehind:
      return "known_behind";
    case Reason::kHalf:
      return "half";
    case Reason::kWaitsForAll:
      return "waits_for_all";
    case Reason::kNoQuorum:
      return "no_quorum";
    case Reason::kWithinDeadline:
      return "within_deadline";
    case Reason::kWarmingUp:
      return "warming_up";
    case Reason::kLimiter:
      return "limiter";
    case Reason::kLogFull:
      return "log_full";
    case Reason::kReEntry:
      return "re_entry";
    case Reason::kWaitingPays:
      return "waiting_pays";
  }
  return "unknown";
}

std::string explain(const Decision& decision) {
  const std::string who = to_string(decision.rank);
  const std::string verb = decision.closes() ? "closes" : "waits";
  const std::string head =
      concat(verb, " with ", decision.num_arrived, " of ", decision.world_size, ": ");
  switch (decision.reason) {
    case Reason::kComplete:
      return head + "all have arrived.";
    case Reason::kDeadline:
      return concat(head, who, " did not come within ", ms(decision.deadline),
                    " of the quorum.");
    case Reason::kExpectedLate:
      return concat(head, who, " is late so often that waiting for it costs more.");
    case Reason::kKnownBehind:
      return concat(head, who, " has not called an earlier operation yet.");
    case Reason::kHalf:
      return concat(head, "no other one came within ", ms(decision.deadline), ".");
    case Reason::kWaitsForAll:
      return concat(head, who, " is missing and the policy skips nobody.");
    case Reason::kNoQuorum:
      return head + "no quorum yet.";
    case Reason::kWithinDeadline:
      return concat(head, who, " has until ", ms(decision.deadline),
                    " after the quorum.");
    case Reason::kWarmingUp:
      return concat(head, "too few arrivals of ", who, " are known, it has until ",
                    ms(decision.deadline), " after the quorum.");
    case Reason::kLimiter:
      return concat(
          head, who,
          " was skipped max_consecutive_skips times in a row and must be in.");
    case Reason::kLogFull:
      return concat(head, "the log of results kept for ", who,
                    decision.closes() ? " is full, so it is left out."
                                      : " is full, so it must be in.");
    case Reason::kReEntry:
      return concat(head, who, " was skipped before and is granted one wait of ",
                    ms(decision.deadline), " after the quorum.");
    case Reason::kWaitingPays:
      return concat(head, "waiting would have made more progress lately, so ", who,
                    " has until ", ms(decision.deadline), " after the quorum.");
  }
  return head + "for an unknown reason.";
}

}  // namespace aikido::straggler

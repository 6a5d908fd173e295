// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Rules of the protocol that a test can switch off, each by its name, as
// base/mutation.h does for the partial allreduce. So the test shows that its checks
// notice. Without AIKIDO_MUTATIONS no rule can be switched off, and asking costs
// nothing. Threads: tests set the rule before they start, and from one thread.

#include <array>
#include <cstdint>
#include <string_view>

namespace aikido::reassign {

enum class Rule : uint8_t {
  kNone,
  kGiveOnce,          // a granted item leaves the owner's table
  kRefusedComesBack,  // the owner computes an item again that the helper refused
  kRefuseLate,        // a helper that came to an end refuses a late grant
  kTakeConfirmed,     // a helper that confirms a grant computes it
  kReturnedIsGone,    // a helper does not compute an item that it gave back
  kReturnUnbegun,     // a helper gives back only items that it has not begun
  kReportSkipped,     // an owner reports the items of a helper that was skipped
  kLostOnce,          // a lost item is reported once
  kLateReturn,        // an item that comes back after the step's end is reported
  kSentIsOpen,        // a grant without an answer is not counted
  kStepOfGrant,       // a grant of another step is refused
  kRequestExpires,    // a request without an answer ends at its deadline
  kOwnSerial,         // each conversation has a serial of its own
};
inline constexpr std::array<std::string_view, 14> kRuleNames = {"none",
                                                                "give-once",
                                                                "refused-comes-back",
                                                                "refuse-late",
                                                                "take-confirmed",
                                                                "returned-is-gone",
                                                                "return-unbegun",
                                                                "report-skipped",
                                                                "lost-once",
                                                                "late-return",
                                                                "sent-is-open",
                                                                "step-of-grant",
                                                                "request-expires",
                                                                "own-serial"};
static_assert(kRuleNames.size() == static_cast<size_t>(Rule::kOwnSerial) + 1);

#ifdef AIKIDO_MUTATIONS
inline Rule broken_rule = Rule::kNone;
// How often the code asked for the broken rule. 0: no code obeys the rule.
inline uint64_t times_broken = 0;
inline bool is_broken(Rule rule) {
  if (broken_rule != rule) return false;
  ++times_broken;
  return true;
}
#else
constexpr bool is_broken(Rule) {
  return false;
}
#endif

}  // namespace aikido::reassign

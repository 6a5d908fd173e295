// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Rules of the partial allreduce that a test can switch off, each by its name. So the
// test shows that its checks notice. Code asks `mutated(Mutation::kX)` where it obeys
// the rule. Without AIKIDO_MUTATIONS the answer is a constant false and costs nothing;
// only the simulator (tests/cpp/sim) sets it. The sources that ask are compiled once
// more for the simulator. Headers do not ask, because other sources include them too.
// One mutation is chosen per process, before its first group. Any thread after that.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace aikido {

enum class Mutation : uint8_t {
  kNone,
  kAcceptAfterPromise,   // accepts results of the old view after a promise
  kSuspectNotAsked,      // the coordinator neither asks nor waits for its suspect
  kOwnerKeepsClosed,     // an owner that promises keeps closed results not received
  kReportExposedOnly,    // a result received for a late caller is not reported
  kIgnoreHad,            // the new owner need not hold the result
  kAcceptOldView,        // accepts results and acknowledgements of any view
  kMinorityView,         // any number of answers suffices for a new view
  kInstallUnvoted,       // a view is installed before more than half accepted it
  kIgnoreAccepted,       // ignores a view that an answer reports as accepted
  kViewNotPassedOn,      // a view is not sent first, nor to members it excludes
  kRemovedIsSilent,      // an excluded member does not answer
  kNoResend,             // open contributions are not sent again in a new view
  kCountTwice,           // a contribution that comes again is counted again
  kSmallQuorum,          // closes a shard that few members know of
  kStrictShrinks,        // a strict operation ends without excluded members
  kOverwriteInputEarly,  // the input is overwritten before the result is whole
  kFreeResultEarly,      // a result is freed before all members have it
  kOldIncarnation,       // accepts messages of a member from before it rejoined
  kReturnFillsPlace,     // a rejoined member takes part in old operations
  kMaskFromReceiver,     // a receiver makes its own mask instead of the owner's
  kUnsettledState,       // a copied state may have results that others lack
  kKeepInVain,           // a member that waits for a lost result stays in the view
  kLeaveOutNeeded,       // excludes a member that is needed without asking it
  kHadMakesAnother,      // a member with a result may compute another
  kFailureToldOnce,      // an error is not reported again in a new view
  kFailedSends,          // a call that has failed sends results to late members
  kFoldGivenUp,          // folds after a promise overwrite a result that was given up
  kPromiseUnread,        // a promise is given before all links are read
  kTransientVotes,       // members without a vote count for a majority
  kEitherMajority,       // a majority of all members suffices, too
  kHalfOfVoters,         // half of the voters suffice
  kInstallUnreliable,    // all members vote on the installation of a view
  kNoVoteAfterReturn,    // a rejoined member has no vote
  kTransientStays,       // a transient member that does not answer stays in the view
  kAgreesAlone,          // an agreement is what each member believes
  kForgetAgreement,      // a later view does not repeat the agreement
  kTransientQuorum,      // closes a shard without a majority of the voters
  kBackupIsMember,       // a backup counts as one more contribution
  kLogPerPolicy,         // each policy of a group has its own log
  kShardTwice,           // both copies of a data shard are counted
  kStandInIsArrival,     // a stand-in counts as the contribution of its primary
  kAskWithoutNeed,       // backups are asked while their primaries have time
  // No rule of S1: everything holds without it, too.
  kNoAck,  // an owner exposes a result that is not full without an acknowledgement
};

// Their names, in the order of the enum.
inline constexpr std::array<std::string_view, 44> kMutationNames = {
    "none",
    "accept-after-promise",
    "suspect-not-asked",
    "owner-keeps-closed",
    "report-exposed-only",
    "ignore-had",
    "accept-old-view",
    "minority-view",
    "install-unvoted",
    "ignore-accepted",
    "view-not-passed-on",
    "removed-is-silent",
    "no-resend",
    "count-twice",
    "small-quorum",
    "strict-shrinks",
    "overwrite-input-early",
    "free-result-early",
    "old-incarnation",
    "return-fills-place",
    "mask-from-receiver",
    "unsettled-state",
    "keep-in-vain",
    "leave-out-needed",
    "had-makes-another",
    "failure-told-once",
    "failed-sends",
    "fold-given-up",
    "promise-unread",
    "transient-votes",
    "either-majority",
    "half-of-voters",
    "install-unreliable",
    "no-vote-after-return",
    "transient-stays",
    "agrees-alone",
    "forget-agreement",
    "transient-quorum",
    "backup-is-member",
    "log-per-policy",
    "shard-twice",
    "stand-in-is-arrival",
    "ask-without-need",
    "no-ack",
};
static_assert(kMutationNames.size() == static_cast<size_t>(Mutation::kNoAck) + 1);

constexpr std::string_view name_of(Mutation mutation) {
  return kMutationNames[static_cast<size_t>(mutation)];
}
// Empty when nothing has that name.
constexpr std::optional<Mutation> mutation_named(std::string_view name) {
  for (size_t i = 0; i < kMutationNames.size(); ++i)
    if (kMutationNames[i] == name) return static_cast<Mutation>(i);
  return std::nullopt;
}

#ifdef AIKIDO_MUTATIONS
inline Mutation chosen_mutation = Mutation::kNone;
// How often the code asked for each mutation. 0 shows that no code obeys the rule.
inline std::array<uint64_t, kMutationNames.size()> times_asked{};
inline bool mutated(Mutation mutation) {
  ++times_asked[static_cast<size_t>(mutation)];
  return chosen_mutation == mutation;
}
#else
constexpr bool mutated(Mutation) {
  return false;
}
#endif

}  // namespace aikido

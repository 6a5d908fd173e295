// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/view_attempt.h"

#include <algorithm>

#include "base/mutation.h"
#include "base/text.h"
#include "membership/view_liveness.h"

namespace aikido::membership {

namespace {

// Limit for the distance between members, in operations. Larger if operations have few
// shards.
constexpr uint64_t kMinOpen = 1024;
constexpr uint64_t kMaxOpenShards = uint64_t{1} << 18;

}  // namespace

std::map<Rank, Report> ViewAttempt::reports() const {
  std::map<Rank, Report> reports;
  for (const auto& [rank, answer] : answers) reports.emplace(rank, answer.report);
  return reports;
}

RankSet ViewAttempt::answered(int32_t size) const {
  RankSet ranks(size);
  for (const auto& [rank, answer] : answers) ranks.insert(rank);
  return ranks;
}

const AcceptedView* ViewAttempt::accepted_before() const {
  const AcceptedView* earlier = nullptr;
  for (const auto& [rank, answer] : answers) {
    if (answer.accepted && !mutated(Mutation::kIgnoreAccepted) &&
        (earlier == nullptr || answer.accepted->ballot > earlier->ballot))
      earlier = &*answer.accepted;
  }
  return earlier;
}

// Waiting for silent members pays only if too few take part otherwise, because their
// results are needed by one member alone. But asking costs next to nothing.
bool ViewAttempt::lacks_excluded(const View& view, const MemberDoubts& doubts) const {
  const Rank excluded = doubts.to_exclude();
  if (excluded == kNoRank || doubts.is_asked(view, excluded) ||
      doubts.is_lost(excluded) || answers.contains(excluded))
    return false;
  const auto makers =
      mutated(Mutation::kHadMakesAnother) ? Makers::kParticipants : Makers::kLacking;
  return would_block(view, reports(), makers) && !mutated(Mutation::kLeaveOutNeeded);
}

bool ViewAttempt::can_spare(const View& view, Rank rank,
                            const std::vector<Seq>& withheld) const {
  Seq low(UINT64_MAX), high;
  for (const auto& [other, answer] : answers) {
    low = std::min(low, answer.report.acked);
    high = std::max({high, answer.report.known, answer.report.acked});
  }
  for (Seq seq(low.value + 1); seq <= high; ++seq.value) {
    const Cut& cut = view.cut_of(seq);
    const auto is_here = [&](int32_t number) {
      return std::any_of(answers.begin(), answers.end(), [&](const auto& entry) {
        return entry.second.report.has(seq, number);
      });
    };
    bool is_whole = true;    // the answers contain every shard
    bool lacks_own = false;  // a shard is missing that only `rank` could have exposed
    for (int32_t s = 0; s < std::ssize(cut.owners); ++s) {
      if (is_here(s)) continue;
      // A member that has not seen the operation does not know if the shard is divided.
      if (cut.is_divided(s)) {
        for (int32_t n = 0; n < cut.num_numbers(); ++n)
          is_whole &= cut.shard_of(n) != s || n == s || is_here(n);
        continue;
      }
      is_whole = false;
      // A result that it holds from the previous view is complete.
      lacks_own |= cut.owner(s) == rank && view.held_at(seq, s) == nullptr;
    }
    const bool is_withheld =
        lacks_own && std::binary_search(withheld.begin(), withheld.end(), seq);
    if (!is_whole && !is_withheld) return false;
  }
  return true;
}

Status check_reach(Rank from, const Report& theirs, Rank self, const Report& ours,
                   size_t num_members) {
  const uint64_t max_open = std::max(kMinOpen, kMaxOpenShards / num_members);
  const uint64_t high = std::max(theirs.known.value, theirs.acked.value);
  const uint64_t own_high = std::max(ours.known.value, ours.acked.value);
  const bool is_ahead = high > ours.acked.value + max_open;
  const bool is_behind = own_high > theirs.acked.value + max_open;
  if (!is_ahead && !is_behind) return Status::ok();
  return Status(Code::kProtocol,
                concat("rank ", from.value, " knows of operation ", high,
                       " and has all up to ", theirs.acked.value, ", rank ", self.value,
                       " knows of ", own_high, " and has all up to ", ours.acked.value,
                       ": at most ", max_open, " operations can be open"),
                from);
}

}  // namespace aikido::membership

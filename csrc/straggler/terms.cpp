// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/terms.h"

namespace aikido::straggler {
namespace {

Reason reason_of(Deadlines::Why why, Duration deadline) {
  if (why == Deadlines::Why::kWarmingUp) return Reason::kWarmingUp;
  if (why == Deadlines::Why::kReEntry) return Reason::kReEntry;
  if (why == Deadlines::Why::kWaitingPays) return Reason::kWaitingPays;
  return deadline == Duration::zero() ? Reason::kExpectedLate : Reason::kWithinDeadline;
}

}  // namespace

TermsOf::TermsOf(const PolicyOptions& options, const History& history,
                 const Deadlines& deadlines, Seq seq, uint64_t bytes,
                 const RankSet& had_time)
    : options_(options),
      history_(history),
      deadlines_(deadlines),
      seq_(seq),
      bytes_(bytes),
      had_time_(had_time) {}

bool TermsOf::is_excluded(Rank rank) const {
  return can_leave_one(options_, history_.members().count(), history_.world_size()) &&
         !history_.log().would_overflow_far(rank, bytes_);
}

bool TermsOf::is_log_full(Rank rank) const {
  return history_.log().would_overflow(rank, bytes_) && !is_excluded(rank);
}

Terms TermsOf::of(Rank rank) const {
  if (history_.consecutive_skips(rank) >= options_.max_consecutive_skips)
    return {true, Reason::kLimiter, Duration::zero(), rank};
  if (history_.log().would_overflow(rank, bytes_))
    return {!is_excluded(rank), Reason::kLogFull, Duration::zero(), rank};
  if (history_.is_behind(rank, seq_))
    return {false, Reason::kKnownBehind, Duration::zero(), rank};
  if (had_time_.contains(rank) || options_.backup_mode == BackupMode::kNPlusB)
    return {false, Reason::kDeadline, Duration::zero(), rank};
  const auto [deadline, why] = deadlines_.of(rank, seq_, bytes_);
  return {false, reason_of(why, deadline), deadline, rank};
}

}  // namespace aikido::straggler

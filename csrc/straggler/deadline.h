// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Note [what waiting is worth]
// How long after the quorum is it worth to wait for a member? Our design: both sides of
// the bargain are measured in time. An operation with a deadline d that meets a lag
// costs min(lag, d) of waiting and, if lag > d, the lost contribution. Its price is
//     c = max(median period of operations / n, floor)
// because a step without one of n members loses the n-th part of its work. The deadline
// of a member is the one that would have cost least over its last lags.
//
// No constant is asked of the user: lags and periods are those of the job. While a late
// member is waited for, its delay L is part of the period P + L, and L > (P + L) / n
// says exactly that n-1 contributions per P are more than n per P + L.
//
// A member of which no long lags are known, or only rare ones, is given a grace: the
// floor, or c / kGraceDivisor if that is longer, because a few milliseconds must not
// cost a contribution that is worth a second. One that is regularly late, beyond the
// grace in kRegularlyLate of its last lags, would let the others wait through the grace
// in vain again and again: its deadline may be shorter, down to 0 if it is late
// practically always.
//
// It is robust. A deadline is chosen over the grace only if it is cheaper, so on
// average a member delays the others by no more than grace + c per operation however
// late it is, and its own lags cannot stretch that. What slows all members moves t_q,
// leaves the lags as they were and skips nobody. A lag up to the grace costs less than
// c, so such lags alone never lead to a skip.
//
// One thread, no clock.

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "straggler/history.h"
#include "straggler/policy.h"

namespace aikido::straggler {

// The grace is the price divided by this, within [floor, ceiling].
inline constexpr int kGraceDivisor = 4;
// Lags beyond the grace, of the last Window::kWindow, that make a member regularly
// late.
inline constexpr int kRegularlyLate = 4;

// c of the note. Requires: world_size >= 1.
Duration price_of_loss(Duration median_period, int32_t world_size, Duration floor);

// The deadline with the lowest cost over `lags`, of these: slack * lag for each of
// them, clamped to [grace, ceiling], and the grace; for a member that is regularly late
// also slack * lag below the grace, and 0. Of those that cost the same the longest, but
// one below the grace only if it is cheaper than all others. Requires: `lags`
// ascending, not empty, none negative; price >= floor; validated options. O(size).
Duration cheapest_deadline(std::span<const Duration> lags, Duration price,
                           const PolicyOptions& options);

// The deadlines of all members, made from a history and kept until it changes.
class Deadlines {
 public:
  // `history` must outlive it. Requires: validated options.
  Deadlines(const PolicyOptions& options, const History& history);

  struct Answer {
    Duration deadline{0};
    bool is_warming_up = false;  // fewer than warmup_operations lags: the ceiling
  };
  // For an operation of `bytes`. O(1), or O(window) after a change.
  Answer of(Rank rank, uint64_t bytes);

 private:
  struct Cached {
    uint64_t version = 0;  // of the lags; 0 before the first
    Duration price{0};
    Duration deadline{0};
  };

  PolicyOptions options_;
  const History& history_;
  std::vector<Cached> cache_;  // by size class, then rank
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Note [what waiting is worth]
// How long after the quorum is it worth to wait for a member? Our design: both sides of
// the bargain are measured in time. An operation with a deadline d that meets a lag
// costs min(lag, d) of waiting and, if lag > d, the lost contribution. Its price is
//     c = max(median period of operations / (kDiscount n), floor)
// A step without one of n members loses the n-th part of its samples, but not of its
// progress: the mean gradient of the others points nearly where that of all does. The
// discount is our choice. With it n = 4 members wait for one that takes up to an eighth
// longer than the others, in every step, and go on without one that takes longer.
//
// To wait for longer than c is never worth it, and of a member of which no long lags
// are known, or only rare ones, nothing says that it comes later: it has c, the grace.
// One that is regularly late would let the others wait through the grace in vain again
// and again: of the last lags kRegularlyLate are beyond it, and one of the last
// kRecovered since it was forgiven (ownership.h). Its deadline is the one that would
// have cost least over these lags: the grace, slack times a lag below it, or 0.
//
// It is robust. A deadline is chosen over the grace only if it is cheaper, so on
// average a member delays the others by no more than 2 c per operation however late it
// is, and its own lags cannot stretch that. What slows all members moves t_q, leaves
// the lags as they were and skips nobody. A lag up to the grace never leads to a skip,
// unless longer ones do, or it was on its way and not to be expected so soon (skip.h).
//
// One thread, no clock.

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "straggler/history.h"
#include "straggler/policy.h"

namespace aikido::straggler {

// What the n-th part of the samples is worth: that part of a period, divided by this.
inline constexpr int kDiscount = 2;
// Lags beyond the grace, of the last Window::kWindow, that make a member regularly
// late,
inline constexpr int kRegularlyLate = 4;
// until so many in a row are within.
inline constexpr size_t kRecovered = 16;

// c of the note. Requires: world_size >= 1.
Duration price_of_loss(Duration median_period, int32_t world_size, Duration floor);

// How long a member has of which nothing bad is known: the price, within [floor,
// ceiling].
Duration grace_of(Duration price, const PolicyOptions& options);

// Whether a member with these lags is regularly late.
bool is_regularly_late(const Window& lags, Duration grace);

// The deadline with the lowest cost over `lags`, of these: 0, slack * lag for each of
// them below the grace, and the grace. Of those that cost the same the longest, but the
// grace only if it is cheaper than all others. Requires: `lags` ascending, not empty,
// none negative; price >= floor; validated options. O(size).
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
  // For how long half of the members wait for one of `num_missing` (skip.h): what is
  // lost without all of them, and at least slack times what a quorum takes as a rule.
  Duration for_quorum(int32_t num_missing, uint64_t bytes) const;
  // No deadline is longer than this, whatever the options say.
  void limit(Duration longest) { longest_ = longest; }

 private:
  Answer made_of(Rank rank, uint64_t bytes);
  Duration price(uint64_t bytes) const;

  struct Cached {
    uint64_t version = 0;  // of the lags; 0 before the first
    Duration price{0};
    Duration deadline{0};
  };

  PolicyOptions options_;
  const History& history_;
  Duration longest_ = Duration::max();
  std::vector<Cached> cache_;  // by size class, then rank
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Sizes of grants: how many items an owner gives to a helper that asks. Pure; any
// thread.
//
// Note [how much to grant]
// The default rule is our design: the owner, the helper that asks and the other helpers
// of the owner should come to an end at the same time. That time T solves
//     sum over all of max(0, T - ready) / ns_per_cost = cost of the unclaimed items.
// The helper that asks gets its own share of that, from the tail, rounded down to whole
// items. Shares for the other helpers stay with the owner until these helpers ask. So
// the first helper does not take everything, and a helper that never asks costs
// nothing.
//   All grants together must bring the end of the owner forward by more than they cost:
// a constant for a move, a share of the owner's remaining time, and the noise of its
// prediction. Each grant alone must gain more than the constant and the noise of its
// items. A single item gains nothing if owner and helper differ by less than one item.
// So if no rank is slow, nothing moves.
//   A grant that only keeps the end gains too, if the owner needs more than twice as
// long for the items as the helper: it saves time of a slow rank, and other ranks can
// relieve the helper. Such moves end, because each makes the sum of all times shorter.
//   The other rule gives blocks, after FlexRR (Harlap et al., SoCC 2016): first 2.5 %
// and then 5 % of the items of the owner. We know these constants second hand only.

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/status.h"

namespace aikido::reassign {

enum class GrantRule : uint8_t { kEqualFinish, kBlocks };

struct GrantOptions {
  GrantRule rule = GrantRule::kEqualFinish;
  // kBlocks: shares of the items that the owner began with; at least one item.
  double first_block = 0.025;
  double next_block = 0.05;
  // Least gain of a move: a constant, and a share of the owner's remaining time.
  Duration move_cost = std::chrono::microseconds(500);
  double least_gain = 0.02;
  // Deviations of the predicted time of the owner that count as noise.
  double noise = 1;
  // Items of one grant, which the caller's messages can carry.
  uint32_t most_items = 0xffff;
};
// kInvalidArgument, with the name of the option and its range.
Status check(const GrantOptions& options);

// Expectation for one rank.
struct Load {
  double ready_ns = 0;     // until it has done all that is not to be divided
  double ns_per_cost = 0;  // above 0
};

// Time T of the note. Requires: at least one rank.
double common_finish_ns(std::span<const Load> ranks, double cost);

// True if a move of items of `cost` gains more than `least_ns`. ready_ns of the owner:
// its end with the items.
bool is_gain(const Load& owner, const Load& helper, double cost, double least_ns);

struct GrantQuestion {
  std::span<const double> costs;  // of the unclaimed items, in the order of the table
  Load owner;                     // without the unclaimed items
  Load helper;
  std::span<const Load> others;  // other helpers of the owner that may ask
  double deviation = 0;          // relative, of the time of one item (ItemRate)
  bool is_first = true;          // no grant to this helper in this step yet
  uint32_t num_begun_with = 0;   // items of the owner at the begin of the step
};

// Number of items to give from the tail; 0: a move is not worth its cost.
uint32_t grant_size(const GrantQuestion& question, const GrantOptions& options);

}  // namespace aikido::reassign

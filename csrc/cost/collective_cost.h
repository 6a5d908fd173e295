// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Cost of an allreduce by algorithm, and the cheapest algorithm for a size: the
// best-fitting primitive of Caramel. Pure; any thread.
//
// Note [costs]
// There are n members with full-duplex links, and m bytes. A message costs alpha, and
// beta per byte. Adding up a byte costs gamma seconds. The largest power of two up to n
// is p. L is log2 p, and C is log2 n rounded up. The members are on h hosts with one
// link each, f members on the smallest host and c on the largest. alpha' and beta' are
// for messages inside a host.
//
//   ring              2 (n-1) alpha + 2 (n-1)/n m beta + (n-1)/n m gamma
//   halving-doubling  2 L alpha + 2 (p-1)/p m beta + (p-1)/p m gamma
//                     if n is no power of two: + 2 (alpha + m beta) + m gamma
//   tree              2 C (alpha + m beta) + C m gamma
//   direct            2 (alpha + (n-2) message) + 2 (n-1)/g m beta + (n-1)/g m gamma
//                     on hosts with several members, instead of (n-1) beta:
//                     the most of (n-a) min(a, g) beta + (a-1) beta', a members on one
//   one owner         as direct, with g = 1
//   two-level         2 (h-1) alpha + 2 (h-1)/h m beta + (h-1)/h m/f gamma
//                     + 2 (c-1) alpha' + 2 (c-1)/f m beta' + (c-1)/f m gamma
//
// Ring: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", JPDC 69(2), 2009. Halving-doubling is Rabenseifner's. Its members
// beyond p give their data to a partner first and get the result from the partner in
// the end: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005, section on allreduce. Tree: a binomial
// reduce and a broadcast, in the same paper.
//   Direct is ours: each member gets its part from all others at once and sends the sum
// back to all. Its messages overlap, except for `message_s`, the time that the sender
// is busy with each. g members own a part: n, unless parts would be smaller than
// `shard_bytes`. With message = alpha this is the cost of sending one after another.
//   Two-level: a reduce-scatter inside each host by pairwise exchange, a ring of each
// part between the hosts, and an allgather inside. It is the hierarchy of Cho et al.,
// "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network
// hierarchy", MLSys 2019. The parts of a host share its link.
//   The formulas of ring, halving-doubling and tree treat each member as a host of its
// own. That is right for a ring with members numbered host by host. By these formulas a
// tree is never cheaper than halving-doubling, and one owner never cheaper than
// several. They exist for effects outside the formulas, such as ranks that share a
// core.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "cost/link_cost.h"

namespace aikido::cost {

inline constexpr std::array kAlgorithms = {
    Algorithm::kDirect, Algorithm::kRing,     Algorithm::kHalvingDoubling,
    Algorithm::kTree,   Algorithm::kTwoLevel, Algorithm::kOneOwner};
// kInvalidArgument for an unknown name.
Result<Algorithm> algorithm_named(std::string_view name);

struct CollectiveCosts {
  LinkCost message;          // alpha and beta; between hosts if there are hosts
  double gamma_s = 0;        // seconds to add up one byte
  double message_s = 0;      // see Note [costs]; from 0 to alpha
  double shard_bytes = 0;    // least size of a part in direct
  std::vector<int> hosts{};  // members on each host; empty: each member on its own host
  LinkCost local{};          // of a message inside a host; unused without hosts
};

// Seconds; 0 for one member. kInvalidArgument if a number is negative or not finite,
// for fewer than one member, for a message_s above alpha, and if the hosts have another
// number of members.
Result<double> cost_of(Algorithm algorithm, int members, double bytes,
                       const CollectiveCosts& costs);

struct Choice {
  Algorithm algorithm = Algorithm::kDirect;
  double time_s = 0;
};
// Cheapest algorithm among `among`; the first of several. kInvalidArgument as
// cost_of(), and for an empty list.
Result<Choice> choose_collective(int members, double bytes,
                                 const CollectiveCosts& costs,
                                 std::span<const Algorithm> among);

}  // namespace aikido::cost

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What an allreduce takes by its algorithm, and which takes least for a size: the
// best-fitting primitive of Caramel. Pure; any thread.
//
// Note [costs]
// n members with full-duplex links, m bytes; alpha and beta of a message, gamma seconds
// for adding up a byte. L = log2 of the largest power of two p up to n, C = log2 n
// rounded up. On h hosts with a link each, f members on the host with the fewest and c
// on that with the most: alpha' and beta' of a message inside a host.
//
//   ring              2 (n-1) alpha + 2 (n-1)/n m beta + (n-1)/n m gamma
//   halving-doubling  2 L alpha + 2 (p-1)/p m beta + (p-1)/p m gamma
//                     and where n is no power of two: + 2 (alpha + m beta) + m gamma
//   tree              2 C (alpha + m beta) + C m gamma
//   direct            2 (alpha + (n-2) message) + 2 (n-1)/g m beta + (n-1)/g m gamma
//                     and on hosts with several members, in the place of (n-1) beta:
//                     the most of (n-a) min(a, g) beta + (a-1) beta', a members on one
//   one owner         as direct, with g = 1
//   two-level         2 (h-1) alpha + 2 (h-1)/h m beta + (h-1)/h m/f gamma
//                     + 2 (c-1) alpha' + 2 (c-1)/f m beta' + (c-1)/f m gamma
//
// Ring: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", JPDC 69(2), 2009. Halving-doubling is Rabenseifner's; it and its
// members beyond p, which give their data to a partner first and get the result from it
// in the end: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005, section on allreduce. Tree: a binomial
// reduce and a broadcast, there too. Direct: each member is sent its part of all others
// at once and sends the sum of it back to all; ours. Its messages overlap but for
// `message_s`, what the sender is busy with each. g of the members own a part, n unless
// parts would be smaller than `shard_bytes`. With message = alpha it is the cost
// of sending them one after another. Two-level: a reduce-scatter inside each host by
// pairwise exchange, a ring of each part between the hosts, an allgather inside; the
// hierarchy of Cho et al., "BlueConnect: decomposing all-reduce for deep learning on
// heterogeneous network hierarchy", MLSys 2019. The parts of a host share its link. The
// formulas of ring, halving-doubling and tree take each member for a host of its own,
// which is true of a ring whose members are numbered host by host. By these formulas a
// tree never takes less than halving-doubling, nor one owner less than several: they
// are here for what the formulas do not have, such as ranks that share a core.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "ordering/graph.h"

namespace aikido::ordering {

inline constexpr std::array kAlgorithms = {
    Algorithm::kDirect, Algorithm::kRing,     Algorithm::kHalvingDoubling,
    Algorithm::kTree,   Algorithm::kTwoLevel, Algorithm::kOneOwner};
// kInvalidArgument for a name that is none of theirs.
Result<Algorithm> algorithm_named(std::string_view name);

struct CollectiveCosts {
  LinkCost message;          // alpha and beta; between hosts where there are some
  double gamma_s = 0;        // of adding up a byte
  double message_s = 0;      // see the note; from 0 to alpha
  double shard_bytes = 0;    // of a part in direct, at least
  std::vector<int> hosts{};  // members on each; none: each is on one of its own
  LinkCost local{};          // of a message inside a host; of no use without hosts
};

// Seconds. One member: 0. kInvalidArgument with a sentence for figures that are
// negative or no numbers, for fewer than one member, for a message_s above alpha, and
// for hosts that have not as many members as there are.
Result<double> cost_of(Algorithm algorithm, int members, double bytes,
                       const CollectiveCosts& costs);

struct Choice {
  Algorithm algorithm = Algorithm::kDirect;
  double time_s = 0;
};
// Of `among` the one that takes least; of several the first. The same refusals, and an
// empty list.
Result<Choice> choose_collective(int members, double bytes,
                                 const CollectiveCosts& costs,
                                 std::span<const Algorithm> among);

}  // namespace aikido::ordering

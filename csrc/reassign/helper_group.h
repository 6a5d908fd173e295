// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Helper groups: which ranks may take work of a rank. They are small and fixed, so the
// messages of a rank do not grow with the number of ranks. Pure; any thread.
//
// Note [helper groups]
// The ranks lie on a ring, host after host. Within a host, most ranks that help each
// other do so in both directions. So a rank has few peers for its number of helpers,
// and it sends news once to each peer. The places of the helpers are shifted by
//     1, -1, q, -q, 2, -2, 3, -3, ...   with q = sqrt(ranks of the host), rounded,
// in a cycle within the host. The long shifts q spread work in few moves: on a host of
// 8 ranks with 4 helpers, two moves reach every rank. The last of an odd number of
// helpers is the opposite rank, if there is one.
//   If there are other hosts, the last of the k helpers is on another host, and all
// that the own host cannot provide. We do not take all from the own host, because often
// all ranks of a host are slow for one reason. A rank on another host is the rank whose
// place is a whole host further on the ring.
//   All these shifts are permutations, so a rank with k helpers also helps k ranks if
// all hosts have equally many ranks, and at most 2 k ranks otherwise.
//   Work can travel further than one group: a helper that expects to be late because of
// the work that it has taken gets help for its own items from its own helpers.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace aikido::reassign {

// Helpers of a rank by default. Our choice; FlexRR has "a small fixed set".
inline constexpr int32_t kDefaultHelpers = 4;

struct HelperGroup {
  std::vector<Rank> helpers;  // may take items of the rank; in the order of the note
  std::vector<Rank> owners;   // their items the rank may take; ascending
};

// Group of `rank` among `num_ranks` ranks, with min(num_helpers, num_ranks - 1)
// helpers. hosts[r] is the number of the host of rank r, any number; empty: all on one
// host. All ranks must pass the same values. kInvalidArgument if a value is out of its
// range.
Result<HelperGroup> helper_group(Rank rank, int32_t num_ranks, int32_t num_helpers,
                                 std::span<const int32_t> hosts);

}  // namespace aikido::reassign

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Plan of an allreduce in hops, by ring, halving-doubling, tree or two-level: the sends
// and receives of a rank in each hop. Pure: depends on the algorithm, the number of
// ranks, the rank and, for two-level, the hosts. Any thread.
//
// Note [hops]
// The first hops fold: received bytes are folded into this rank's bytes of the same
// shards. The last of these hops makes the results. The other hops copy: received bytes
// are the result. In each hop a rank sends its data from the hop before. It need not
// wait until other ranks are as far. n ranks, p the largest power of two up to n, L =
// log2 p, C = log2 n rounded up.
//
//   ring              n shards. n-1 hops fold: in hop k rank r sends shard r-k to rank
//                     r+1. n-1 hops copy, in the same direction.
//   halving-doubling  p shards. L hops fold: in hop k ranks that differ in bit k halve
//                     the shards that both have, and each sends the other's half. L
//                     hops copy, back in the opposite order. If n > p, each rank r >= p
//                     gives everything to rank r-p in a first hop and gets everything
//                     back in a last hop.
//   tree              1 shard. C hops fold: in hop k rank r + 2^k sends to rank r, if
//                     2^(k+1) divides r. C hops copy, back in the opposite order.
//   two-level         h hosts, m leaders on each: its first m ranks, where m is the
//                     number of ranks on the smallest host. m h shards, part l of them
//                     for leader l. First hops inside each host, c-1 with c ranks: in
//                     hop k its i-th rank sends part l to leader l = i+k+1, modulo c.
//                     Then the leaders with the same l form a ring around the hosts,
//                     for their part: h-1 hops fold and h-1 hops copy. Last the first
//                     hops again, in which each leader sends its part. A host with
//                     fewer ranks than another host rests in hops that only the other
//                     needs.
//
// Each shard is folded along one chain or tree of ranks. The last rank of it has the
// only result, and all others copy it. So all ranks have the same bits, and the order
// of the sum depends on n and the hosts only. Sources and costs:
// cost/collective_cost.h.

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace aikido::collectives {

// Shards [first, end).
struct Shards {
  int32_t first = 0;
  int32_t end = 0;
};

// Transfers of one hop.
struct Transfer {
  Rank peer = kNoRank;  // none: there is no such transfer
  Shards shards;
};
struct Hop {
  Transfer send;
  Transfer receive;
};

class HopPlan {
 public:
  // `hosts`: host of each rank, any numbers; empty: each rank is on a host of its own.
  // Requires: an algorithm with hops, not one with owners; 1 <= size, 0 <= self < size;
  // as many hosts as ranks, or none.
  HopPlan(Algorithm algorithm, int32_t size, Rank self,
          std::span<const int32_t> hosts = {});

  // Equal on all ranks.
  int32_t num_shards() const { return num_shards_; }
  int32_t num_hops() const { return num_folds_ + num_copies_; }
  // Hops before this one fold, the others copy.
  int32_t num_folds() const { return num_folds_; }

  // Requires: 0 <= k < num_hops().
  Hop hop(int32_t k) const;

 private:
  // Ranks that pass shards on around a circle: all ranks, or the leaders of one part.
  struct Circle {
    int32_t length = 0;
    int32_t place = 0;  // of this rank
    Rank next, previous;
    int32_t first_shard = 0;
  };
  // The ranks of this host.
  struct Local {
    std::vector<int32_t> ranks;
    int32_t place = 0;  // of this rank among them
    int32_t num_leaders = 1;
    int32_t num_hops = 0;  // inside hosts before the ring, and the same number after it
  };

  void place_on(std::span<const int32_t> hosts);
  Hop around(int32_t k) const;
  Hop two_level(int32_t k) const;
  Hop halving_doubling(int32_t k) const;
  Hop tree(int32_t k) const;
  Shards half_after(int32_t rank, int32_t num_halvings) const;

  Algorithm algorithm_;
  int32_t size_;
  int32_t self_;
  int32_t num_shards_ = 1;
  int32_t num_folds_ = 0;
  int32_t num_copies_ = 0;
  Circle circle_;  // ring and two-level only
  Local local_;    // two-level only
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/hop_plan.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/check.h"

namespace aikido::collectives {

HopPlan::HopPlan(Algorithm algorithm, int32_t size, Rank self,
                 std::span<const int32_t> hosts)
    : algorithm_(algorithm), size_(size), self_(self.value) {
  AIKIDO_CHECK(!is_by_owners(algorithm), name_of(algorithm), " has no hops");
  AIKIDO_CHECK(hosts.empty() || hosts.size() == static_cast<size_t>(size),
               concat(hosts.size(), " hosts of ", size, " ranks"));
  const auto n = static_cast<uint32_t>(size);
  switch (algorithm) {
    case Algorithm::kDirect:
    case Algorithm::kOneOwner:
    case Algorithm::kRing:
      num_shards_ = size;
      num_folds_ = size - 1;
      circle_ = {size, self_, Rank((self_ + 1) % size),
                 Rank((self_ + size - 1) % size)};
      break;
    case Algorithm::kHalvingDoubling:
      num_shards_ = static_cast<int32_t>(std::bit_floor(n));
      // If the size is no power of two, one extra hop at each end serves the surplus
      // ranks.
      num_folds_ =
          static_cast<int32_t>(std::bit_width(n)) - (num_shards_ < size ? 0 : 1);
      break;
    case Algorithm::kTree:
      num_folds_ = static_cast<int32_t>(std::bit_width(n - 1));
      break;
    case Algorithm::kTwoLevel:
      // The smallest host limits the number of circles, because each circle has one
      // leader on each host.
      place_on(hosts);
      num_shards_ = local_.num_leaders * circle_.length;
      num_folds_ = local_.num_hops + circle_.length - 1;
      break;
  }
  num_copies_ = num_folds_;
}

void HopPlan::place_on(std::span<const int32_t> hosts) {
  std::map<int32_t, std::vector<int32_t>> ranks_of;
  for (int32_t r = 0; r < size_; ++r)
    // Without known hosts each rank counts as a host of its own.
    ranks_of[hosts.empty() ? r : hosts[static_cast<size_t>(r)]].push_back(r);
  const auto own =
      ranks_of.find(hosts.empty() ? self_ : hosts[static_cast<size_t>(self_)]);
  local_.ranks = own->second;
  const auto in_order = std::find(local_.ranks.begin(), local_.ranks.end(), self_);
  local_.place = static_cast<int32_t>(in_order - local_.ranks.begin());
  local_.num_leaders = size_;
  for (const auto& [host, ranks] : ranks_of) {
    const auto count = static_cast<int32_t>(ranks.size());
    local_.num_leaders = std::min(local_.num_leaders, count);
    local_.num_hops = std::max(local_.num_hops, count - 1);
  }
  circle_.length = static_cast<int32_t>(ranks_of.size());
  circle_.place = static_cast<int32_t>(std::distance(ranks_of.begin(), own));
  circle_.first_shard = local_.place * circle_.length;
  if (local_.place >= local_.num_leaders) return;  // member of no circle
  const auto leader_on = [&](auto host) {
    return Rank(host->second[static_cast<size_t>(local_.place)]);
  };
  circle_.next =
      leader_on(std::next(own) == ranks_of.end() ? ranks_of.begin() : std::next(own));
  circle_.previous =
      leader_on(std::prev(own == ranks_of.begin() ? ranks_of.end() : own));
}

Hop HopPlan::hop(int32_t k) const {
  switch (algorithm_) {
    case Algorithm::kDirect:
    case Algorithm::kOneOwner:
    case Algorithm::kRing:
      break;
    case Algorithm::kHalvingDoubling:
      return halving_doubling(k);
    case Algorithm::kTree:
      return tree(k);
    case Algorithm::kTwoLevel:
      return two_level(k);
  }
  return around(k);
}

// In each hop a rank sends the shard that the previous hop brought. This holds for
// folds and, as the count goes on, for copies too.
Hop HopPlan::around(int32_t k) const {
  const int32_t n = circle_.length;
  const auto shard = [&](int32_t behind) {
    const int32_t s = circle_.first_shard + (circle_.place - behind + 2 * n) % n;
    return Shards{s, s + 1};
  };
  return {{circle_.next, shard(k)}, {circle_.previous, shard(k + 1)}};
}

// In the hops inside a host before the circle a rank sends its own data. In those after
// the circle it sends the result of its part. So none of these hops waits for data of
// an earlier hop.
Hop HopPlan::two_level(int32_t k) const {
  const bool is_leader = local_.place < local_.num_leaders;
  // From this hop on, copies inside the host.
  const int32_t behind = num_hops() - local_.num_hops;
  if (k >= local_.num_hops && k < behind)
    return is_leader ? around(k - local_.num_hops) : Hop{};
  const bool folds = k < local_.num_hops;
  const auto count = static_cast<int32_t>(local_.ranks.size());
  const int32_t distance = 1 + (folds ? k : k - behind);
  if (distance >= count) return {};
  const auto part_with = [&](int32_t leader, int32_t place) {
    if (leader >= local_.num_leaders) return Transfer{};
    const Shards part{leader * circle_.length, (leader + 1) * circle_.length};
    return Transfer{Rank(local_.ranks[static_cast<size_t>(place)]), part};
  };
  const int32_t to = (local_.place + distance) % count;
  const int32_t from = (local_.place - distance + count) % count;
  return {part_with(folds ? to : local_.place, to),
          part_with(folds ? local_.place : from, from)};
}

// Shards that `rank` folds or provides after so many halvings. If bit i of the rank is
// set, it keeps the upper half in halving i.
Shards HopPlan::half_after(int32_t rank, int32_t num_halvings) const {
  Shards own{0, num_shards_};
  for (int32_t i = 0; i < num_halvings; ++i) {
    const int32_t middle = (own.first + own.end) / 2;
    ((rank >> i & 1) != 0 ? own.first : own.end) = middle;
  }
  return own;
}

Hop HopPlan::halving_doubling(int32_t k) const {
  const int32_t p = num_shards_;
  const bool folds = k < num_folds_;
  // Distance from the first hop, or for copies from the last hop.
  int32_t depth = folds ? k : num_hops() - 1 - k;
  // The extra hop: a surplus rank hands its data to rank - p, and gets the result back.
  if (p < size_ && depth-- == 0) {
    const Shards all{0, p};
    Hop hop;
    Transfer& up = folds ? hop.send : hop.receive;
    Transfer& down = folds ? hop.receive : hop.send;
    if (self_ >= p) up = {Rank(self_ - p), all};
    if (self_ + p < size_) down = {Rank(self_ + p), all};
    return hop;
  }
  if (self_ >= p) return {};
  const int32_t partner = self_ ^ (1 << depth);
  const Shards own = half_after(self_, depth + 1);
  const Shards other = half_after(partner, depth + 1);
  return {{Rank(partner), folds ? other : own}, {Rank(partner), folds ? own : other}};
}

Hop HopPlan::tree(int32_t k) const {
  const bool folds = k < num_folds_;
  const int32_t distance = 1 << (folds ? k : num_hops() - 1 - k);
  Hop hop;
  Transfer& up = folds ? hop.send : hop.receive;
  Transfer& down = folds ? hop.receive : hop.send;
  // At distance d, ranks with r % 2d = d send to r - d, and multiples of 2d receive.
  const int32_t place = self_ % (2 * distance);
  if (place == distance) up = {Rank(self_ - distance), {0, 1}};
  if (place == 0 && self_ + distance < size_) down = {Rank(self_ + distance), {0, 1}};
  return hop;
}

}  // namespace aikido::collectives

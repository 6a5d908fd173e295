// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/hop_plan.h"

#include <bit>

#include "base/check.h"

namespace aikido::collectives {

HopPlan::HopPlan(Algorithm algorithm, int32_t size, Rank self)
    : algorithm_(algorithm), size_(size), self_(self.value) {
  AIKIDO_CHECK(algorithm != Algorithm::kDirect, "direct has no hops");
  const auto n = static_cast<uint32_t>(size);
  switch (algorithm) {
    case Algorithm::kDirect:
    case Algorithm::kRing:
      num_shards_ = size;
      num_folds_ = size - 1;
      break;
    case Algorithm::kHalvingDoubling:
      num_shards_ = static_cast<int32_t>(std::bit_floor(n));
      num_folds_ =
          static_cast<int32_t>(std::bit_width(n)) - (num_shards_ < size ? 0 : 1);
      break;
    case Algorithm::kTree:
      num_folds_ = static_cast<int32_t>(std::bit_width(n - 1));
      break;
  }
  num_copies_ = num_folds_;
}

Hop HopPlan::hop(int32_t k) const {
  switch (algorithm_) {
    case Algorithm::kDirect:
    case Algorithm::kRing:
      break;
    case Algorithm::kHalvingDoubling:
      return halving_doubling(k);
    case Algorithm::kTree:
      return tree(k);
  }
  return ring(k);
}

// A copying hop sends what the hop before has brought, as a folding one does: so
// they count on.
Hop HopPlan::ring(int32_t k) const {
  const auto shard = [&](int32_t behind) {
    const int32_t s = (self_ - behind + 2 * size_) % size_;
    return Shards{s, s + 1};
  };
  return {{Rank((self_ + 1) % size_), shard(k)},
          {Rank((self_ + size_ - 1) % size_), shard(k + 1)}};
}

// What `rank` has to fold or to give once its shards were halved so often: where bit i
// of it is set it keeps the upper half the i-th time.
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
  // How far from the first hop, or for the copies from the last.
  int32_t depth = folds ? k : num_hops() - 1 - k;
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
  const int32_t place = self_ % (2 * distance);
  if (place == distance) up = {Rank(self_ - distance), {0, 1}};
  if (place == 0 && self_ + distance < size_) down = {Rank(self_ + distance), {0, 1}};
  return hop;
}

}  // namespace aikido::collectives

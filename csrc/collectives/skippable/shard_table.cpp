// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/shard_table.h"

#include <algorithm>

namespace aikido::collectives {

ShardTable::ShardTable(const ShardPlan& plan, int32_t first, size_t element_bytes)
    : element_bytes_(element_bytes), num_shards_(plan.num_shards()) {
  for (int32_t s = 0; s < num_shards_; ++s)
    ranges_.push_back({first + s, plan.first_element(s), plan.num_elements(s)});
}

// Requires: the shards have the numbers that they have in the cut.
void ShardTable::divide(const membership::Cut& cut, size_t min_part_bytes) {
  for (size_t d = 0; d < cut.divisions.size(); ++d) {
    const auto& [shard, owners] = cut.divisions[d];
    if (shard >= num_shards_) continue;  // the tensor has fewer shards
    const Range whole = range(shard);
    const ShardPlan parts(whole.count, element_bytes_,
                          static_cast<int32_t>(owners.size()), min_part_bytes);
    // Too small to be divided.
    if (parts.num_shards() < 2) continue;
    divided_.push_back({shard, size(), size() + parts.num_shards()});
    for (int32_t p = 0; p < parts.num_shards(); ++p)
      ranges_.push_back({cut.first_part(d) + p, whole.first + parts.first_element(p),
                         parts.num_elements(p)});
  }
}

bool ShardTable::is_extended_by(const ShardTable& later) const {
  const auto is_prefix = [](const auto& a, const auto& b) {
    return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
  };
  return num_shards_ == later.num_shards_ && is_prefix(ranges_, later.ranges_) &&
         is_prefix(divided_, later.divided_);
}

}  // namespace aikido::collectives

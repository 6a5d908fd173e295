// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Positions of the shards of one operation in its tensor, and of the parts into which
// large shards are divided (membership/view.h). Shards and parts have an index each,
// shards first. number() is their number in the cut. Pure, and equal on every member.

#include <vector>

#include "collectives/shard_plan.h"
#include "membership/view.h"

namespace aikido::collectives {

class ShardTable {
 public:
  // A shard with its parts, by index: [begin, end).
  struct DividedShard {
    int32_t shard, begin, end;
    friend bool operator==(const DividedShard&, const DividedShard&) = default;
  };

  ShardTable() = default;
  // Shard s has the number first + s in the cut. Parts hold at least `min_part_bytes`.
  ShardTable(const ShardPlan& plan, int32_t first, size_t element_bytes);
  void divide(const membership::Cut& cut, size_t min_part_bytes);

  int32_t num_shards() const { return num_shards_; }
  // Number of shards and parts.
  int32_t size() const { return static_cast<int32_t>(ranges_.size()); }
  const std::vector<DividedShard>& divided() const { return divided_; }
  // True if `later` has the same shards and parts, and perhaps more parts: indices
  // stay.
  bool is_extended_by(const ShardTable& later) const;

  int32_t number(int32_t i) const { return range(i).number; }
  uint64_t first_element(int32_t i) const { return range(i).first; }
  uint64_t num_elements(int32_t i) const { return range(i).count; }
  size_t first_byte(int32_t i) const { return range(i).first * element_bytes_; }
  size_t num_bytes(int32_t i) const { return range(i).count * element_bytes_; }

 private:
  struct Range {
    int32_t number = 0;
    uint64_t first = 0, count = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  const Range& range(int32_t i) const { return ranges_[static_cast<size_t>(i)]; }

  size_t element_bytes_ = 1;
  int32_t num_shards_ = 0;
  std::vector<Range> ranges_;
  std::vector<DividedShard> divided_;
};

}  // namespace aikido::collectives

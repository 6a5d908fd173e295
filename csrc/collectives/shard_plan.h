// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Plan that cuts a bucket into shards and gives each shard an owner. Pure, and equal on
// every member: it depends on the call and the size of the view only.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/types.h"

namespace aikido::collectives {

class ShardPlan {
 public:
  // `count` elements of `element_bytes`, `size` members. Shards hold at least
  // `min_shard_bytes` (the last shard may be smaller). So a small bucket has one owner,
  // and the fewest messages. `first_owner` owns shard 0, the next rank shard 1.
  ShardPlan(uint64_t count, size_t element_bytes, int32_t size, size_t min_shard_bytes,
            Rank first_owner = Rank(0))
      : count_(count),
        element_bytes_(element_bytes),
        size_(size),
        first_owner_(first_owner) {
    const uint64_t bytes = count * element_bytes;
    const uint64_t wanted =
        std::max<uint64_t>(1, bytes / std::max<size_t>(1, min_shard_bytes));
    num_shards_ =
        static_cast<int32_t>(std::min<uint64_t>(wanted, static_cast<uint64_t>(size)));
    // Shards begin at cache lines.
    const uint64_t line = std::max<uint64_t>(1, 64 / element_bytes);
    const auto shards = static_cast<uint64_t>(num_shards_);
    per_shard_ = (count + shards - 1) / shards;
    per_shard_ = (per_shard_ + line - 1) / line * line;
  }

  int32_t num_shards() const { return num_shards_; }
  Rank owner(int32_t shard) const { return Rank((first_owner_.value + shard) % size_); }
  // The shard that `rank` owns; a rank owns at most one.
  std::optional<int32_t> shard_of(Rank rank) const {
    const int32_t shard = (rank.value - first_owner_.value + size_) % size_;
    if (shard >= num_shards_) return std::nullopt;
    return shard;
  }
  uint64_t first_element(int32_t shard) const {
    return std::min(count_, per_shard_ * static_cast<uint64_t>(shard));
  }
  uint64_t num_elements(int32_t shard) const {
    return first_element(shard + 1) - first_element(shard);
  }
  size_t first_byte(int32_t shard) const {
    return first_element(shard) * element_bytes_;
  }
  size_t num_bytes(int32_t shard) const { return num_elements(shard) * element_bytes_; }

 private:
  uint64_t count_;
  size_t element_bytes_;
  int32_t size_;
  Rank first_owner_;
  int32_t num_shards_ = 1;
  uint64_t per_shard_ = 0;
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Own items of one rank in one step that are not claimed yet. The training thread
// claims them from the front, and the progress thread gives them away from the tail.
// Each item is claimed or given, never both.
//
// Threads: claim() and unclaimed() may run on any threads at any time. give_tail() is
// for one thread at a time (the thread that uses the Reassigner). Nothing blocks or
// locks: the two limits are halves of one atomic word, so each change sees both.
// Lifetime: one table for each step. A thread that still uses the table of a former
// step finds it empty, because a step ends only when its table is empty.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "reassign/item.h"

namespace aikido::reassign {

class ItemTable {
 public:
  struct Claimed {
    uint32_t index = 0;
    uint32_t num_left = 0;  // unclaimed own items behind this one
  };

  explicit ItemTable(uint32_t num_items) : limits_(packed(0, num_items)) {}

  // Takes the first unclaimed item. nullopt: there is none.
  std::optional<Claimed> claim() {
    uint64_t seen = limits_.load(std::memory_order_acquire);
    while (next_of(seen) < end_of(seen)) {
      const uint64_t wanted = packed(next_of(seen) + 1, end_of(seen));
      if (limits_.compare_exchange_weak(seen, wanted, std::memory_order_acq_rel))
        return Claimed{next_of(seen), end_of(seen) - next_of(seen) - 1};
    }
    return std::nullopt;
  }

  // Takes up to `count` unclaimed items from the tail. The range is shorter, or empty,
  // if the other thread has claimed items meanwhile.
  ItemRange give_tail(uint32_t count) {
    uint64_t seen = limits_.load(std::memory_order_acquire);
    while (true) {
      const uint32_t given = std::min(count, end_of(seen) - next_of(seen));
      const uint32_t end = end_of(seen) - given;
      if (limits_.compare_exchange_weak(seen, packed(next_of(seen), end),
                                        std::memory_order_acq_rel))
        return {end, given};
    }
  }

  // Snapshot. The front may have moved when the caller looks at it; the tail moves only
  // by give_tail().
  ItemRange unclaimed() const {
    const uint64_t seen = limits_.load(std::memory_order_acquire);
    return {next_of(seen), end_of(seen) - next_of(seen)};
  }

 private:
  static constexpr uint64_t packed(uint32_t next, uint32_t end) {
    return uint64_t{next} << 32 | end;
  }
  static constexpr uint32_t next_of(uint64_t limits) {
    return static_cast<uint32_t>(limits >> 32);
  }
  static constexpr uint32_t end_of(uint64_t limits) {
    return static_cast<uint32_t>(limits);
  }

  std::atomic<uint64_t>
      limits_;  // first unclaimed item, and end of the unclaimed items
};

}  // namespace aikido::reassign

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Counters of a group. The progress thread writes them; any thread reads them.

#include <atomic>
#include <cstdint>

#include "straggler/progress_account.h"

namespace aikido::engine {

// Counts since the group was made. Any thread may read them.
struct GroupCounters {
  std::atomic<uint64_t> operations{0};
  std::atomic<uint64_t> partial_operations{0};
  std::atomic<uint64_t> skipped_own{0};  // committed without this member's part
  std::atomic<uint64_t> failures{0};
  std::atomic<uint64_t> timed_out{0};     // exceeded their deadline here
  std::atomic<uint64_t> stale_frames{0};  // of operations that have ended
  std::atomic<uint64_t> cancelled_bytes{0};
  std::atomic<uint64_t> given_bytes{0};  // bytes contributed as a backup
  // Operations in which this member has closed a shard by skipping, and the time that
  // WaitAll would have taken for them (straggler/progress_account.h).
  std::atomic<uint64_t> replayed_operations{0};
  std::atomic<uint64_t> replayed_bytes{0};
  std::atomic<uint64_t> replayed_bytes_in{0};  // contributed part of replayed_bytes
  std::atomic<uint64_t> replayed_us{0};
  std::atomic<uint64_t> replayed_wait_all_us{0};

  void set_replayed(const straggler::ReplayedOperations& sums) {
    const auto us = [](Duration d) { return static_cast<uint64_t>(d.count() / 1000); };
    replayed_operations.store(sums.operations, std::memory_order_relaxed);
    replayed_bytes.store(static_cast<uint64_t>(sums.bytes), std::memory_order_relaxed);
    replayed_bytes_in.store(static_cast<uint64_t>(sums.bytes_in),
                            std::memory_order_relaxed);
    replayed_us.store(us(sums.time), std::memory_order_relaxed);
    replayed_wait_all_us.store(us(sums.time_of_wait_all), std::memory_order_relaxed);
  }
};

}  // namespace aikido::engine

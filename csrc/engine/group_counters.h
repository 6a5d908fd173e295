// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What a group counts of itself. The progress thread writes; any thread reads.

#include <atomic>
#include <cstdint>

namespace aikido::engine {

// Counted since birth; read from any thread.
struct GroupCounters {
  std::atomic<uint64_t> operations{0};
  std::atomic<uint64_t> partial_operations{0};
  std::atomic<uint64_t> skipped_own{0};  // operations committed without this member
  std::atomic<uint64_t> failures{0};
  std::atomic<uint64_t> timed_out{0};     // collectives that passed their deadline here
  std::atomic<uint64_t> stale_frames{0};  // for operations that are over here
  std::atomic<uint64_t> cancelled_bytes{0};
  std::atomic<uint64_t> given_bytes{0};  // of what was contributed as a backup
};

}  // namespace aikido::engine

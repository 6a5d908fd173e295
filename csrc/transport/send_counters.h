// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What this process counts of the chunks that it sends to other hosts and to ranks of
// its own, over all groups. The progress thread writes; any thread reads.

#include <atomic>
#include <cstdint>

namespace aikido::transport {

// Counted since birth. Times are of messages of data, in nanoseconds, summed.
struct SendCounters {
  std::atomic<uint64_t> chunks{0};
  // A chunk started between two chunks of a less urgent message.
  std::atomic<uint64_t> preemptions{0};
  // A chunk started while a more urgent one could have, on any link of the uplink; not
  // counted are overdue ones.
  std::atomic<uint64_t> inversions{0};
  std::atomic<uint64_t> overdue_chunks{0};
  std::atomic<uint64_t> queued_ns{0};  // from the call to the first chunk
  std::atomic<uint64_t> paused_ns{0};  // between two chunks, while others went
  std::atomic<uint64_t> wire_ns{0};    // from the first chunk to the last, but pauses
  // Bytes that may be on their way, and the rate that this comes from; 0: no bound.
  std::atomic<uint64_t> credit_bytes{0};
  std::atomic<uint64_t> bytes_per_s{0};

  static void add(std::atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n,
                  std::memory_order_relaxed);
  }
};

}  // namespace aikido::transport

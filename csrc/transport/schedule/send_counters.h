// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Counters of the chunks that this process sends to other hosts and to ranks of its own
// host, over all groups. The progress thread writes them; any thread reads them.

#include <atomic>
#include <cstdint>

namespace aikido::transport {

// Counts since the process began. Times are of data messages, in nanoseconds, summed.
struct SendCounters {
  std::atomic<uint64_t> chunks{0};
  // Chunks that started between two chunks of a less urgent message.
  std::atomic<uint64_t> preemptions{0};
  // Chunks that started while a more urgent chunk could have started, on any link of
  // the uplink. Overdue chunks are not counted.
  std::atomic<uint64_t> inversions{0};
  std::atomic<uint64_t> overdue_chunks{0};
  std::atomic<uint64_t> queued_ns{0};  // from the call to the first chunk
  std::atomic<uint64_t> paused_ns{0};  // between two chunks, while others were sent
  std::atomic<uint64_t> wire_ns{0};  // from the first chunk to the last, without pauses
  // Limit of bytes in flight, and the rate that the limit is derived from; 0: no limit.
  std::atomic<uint64_t> credit_bytes{0};
  std::atomic<uint64_t> bytes_per_s{0};

  static void add(std::atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n,
                  std::memory_order_relaxed);
  }
};

}  // namespace aikido::transport

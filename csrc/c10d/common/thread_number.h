// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Number of the calling thread in this process: from 1 on, and never used again, unlike
// the ids of threads. Any thread.

#include <atomic>
#include <cstdint>

namespace aikido::adapter {

inline uint64_t this_thread_number() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t number = ++last;
  return number;
}

}  // namespace aikido::adapter

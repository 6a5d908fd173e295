// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Counter of the program's heap allocations by operator new. Tests must link
// counted_heap.cpp, which replaces the operators. Any thread.

#include <atomic>
#include <cstdint>

namespace aikido::testing {

extern std::atomic<uint64_t> num_allocations;

// Scope in which allocations of this thread do not count. Must not be nested.
class NotCounted {
 public:
  NotCounted();
  ~NotCounted();
  NotCounted(const NotCounted&) = delete;
  NotCounted& operator=(const NotCounted&) = delete;
};

}  // namespace aikido::testing

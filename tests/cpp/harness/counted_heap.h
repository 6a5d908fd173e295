// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Counts what a program asks of the heap by new: counted_heap.cpp, which it has to be
// linked with, replaces the operators. Any thread.

#include <atomic>
#include <cstdint>

namespace aikido::testing {

extern std::atomic<uint64_t> num_allocations;

// What this thread asks for meanwhile does not count. Not within another one.
class NotCounted {
 public:
  NotCounted();
  ~NotCounted();
  NotCounted(const NotCounted&) = delete;
  NotCounted& operator=(const NotCounted&) = delete;
};

}  // namespace aikido::testing

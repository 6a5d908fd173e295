// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The spans of one thread, in memory that is taken once. One thread pushes, one at a
// time pops; neither waits for the other.

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "trace/span.h"

namespace aikido::trace {

class Ring {
 public:
  // Room for `capacity` spans, at least 1.
  explicit Ring(size_t capacity);

  // False, and the span is dropped and counted: it is full. What was recorded first
  // stays, because it is where a trace begins.
  bool push(const Span& span);
  // Appends all that is in it, oldest first.
  void pop_all(std::vector<Span>& spans);
  // Dropped since the last time that this was asked.
  uint64_t take_dropped() { return dropped_.exchange(0, std::memory_order_relaxed); }

 private:
  const size_t capacity_;
  const std::unique_ptr<Span[]> spans_;
  std::atomic<uint64_t> pushed_{0};
  std::atomic<uint64_t> popped_{0};
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace aikido::trace

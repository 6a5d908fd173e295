// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Fixed-size queue for the spans of one thread. One thread pushes, and one thread at a
// time pops. Neither waits for the other.

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

  // Appends a span. False: the ring is full, and the span is dropped and counted. The
  // first spans are kept, because they contain the beginning of the trace.
  bool push(const Span& span);
  // Moves all spans to the end of `spans`, oldest first.
  void pop_all(std::vector<Span>& spans);
  // Number of dropped spans since the last call.
  uint64_t take_dropped() { return dropped_.exchange(0, std::memory_order_relaxed); }

 private:
  const size_t capacity_;
  const std::unique_ptr<Span[]> spans_;
  std::atomic<uint64_t> pushed_{0};
  std::atomic<uint64_t> popped_{0};
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace aikido::trace

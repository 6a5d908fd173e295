// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/ring.h"

#include <algorithm>

namespace aikido::trace {

Ring::Ring(size_t capacity)
    : capacity_(std::max<size_t>(1, capacity)), spans_(new Span[capacity_]) {}

bool Ring::push(const Span& span) {
  const uint64_t pushed = pushed_.load(std::memory_order_relaxed);
  if (pushed - popped_.load(std::memory_order_acquire) == capacity_) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  spans_[pushed % capacity_] = span;
  pushed_.store(pushed + 1, std::memory_order_release);
  return true;
}

void Ring::pop_all(std::vector<Span>& spans) {
  const uint64_t pushed = pushed_.load(std::memory_order_acquire);
  uint64_t popped = popped_.load(std::memory_order_relaxed);
  for (; popped < pushed; ++popped) spans.push_back(spans_[popped % capacity_]);
  popped_.store(popped, std::memory_order_release);
}

}  // namespace aikido::trace

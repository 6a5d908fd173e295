// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "harness/counted_heap.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace aikido::testing {

std::atomic<uint64_t> num_allocations{0};

namespace {

thread_local bool is_counting = true;

void* counted(void* block) {
  if (is_counting) num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

NotCounted::NotCounted() {
  is_counting = false;
}

NotCounted::~NotCounted() {
  is_counting = true;
}

}  // namespace aikido::testing

// The other operators of the language call these.
void* operator new(size_t bytes) {
  return aikido::testing::counted(std::malloc(bytes));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto grain = static_cast<size_t>(alignment);
  const size_t whole = (bytes + grain - 1) / grain * grain;
  return aikido::testing::counted(std::aligned_alloc(grain, whole));
}
void operator delete(void* block) noexcept {
  std::free(block);
}
void operator delete(void* block, size_t) noexcept {
  std::free(block);
}
void operator delete(void* block, std::align_val_t) noexcept {
  std::free(block);
}
void operator delete(void* block, size_t, std::align_val_t) noexcept {
  std::free(block);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How fast one thread can read memory, and read and write it, without computing, and
// how fast it can add and store what is in the L1 cache, and what is not: the limits
// that bench_kernels.cpp holds the sums against. Several ways of each, of which the
// fastest counts. A list of one instruction set may only be called on a CPU that has
// it.

#include <cstddef>
#include <vector>

namespace aikido::bench {

// Loads `bytes` of each of `num_sources` buffers once. One that writes also stores
// `bytes` of zeros to the first of them. One that adds has the additions of their sum,
// too, and loads and stores as much, but over and over of the first 32 KiB of all; one
// that adds there does so where the buffers lie. No store waits for a sum.
// Requires: bytes is a multiple of 4096, num_sources is 2, 4 or 8, addresses are
// multiples of 64.
using MemoryLoopFn = void (*)(std::byte* const* buffers, size_t num_sources,
                              size_t bytes);

struct MemoryLoop {
  const char* kind;  // read, write, add, add and write, add there
  const char* name;
  MemoryLoopFn run;
};

std::vector<MemoryLoop> memory_loops_portable();
std::vector<MemoryLoop> memory_loops_avx2();
std::vector<MemoryLoop> memory_loops_avx512();

}  // namespace aikido::bench

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Loops that show the limits of one thread: how fast it can read memory, and read and
// write it, without computing. Others show how fast it can add and store data in the L1
// cache and outside. The sums of bench_kernels.cpp are compared with these limits. Each
// kind has several loops, of which the fastest counts. The list of an instruction set
// may only be called on a CPU that has this set.

#include <cstddef>
#include <vector>

namespace aikido::bench {

// Loads `bytes` of each of `num_sources` buffers once. A loop of kind "write" also
// stores `bytes` of zeros to the first buffer. A loop of kind "add" also does the
// additions of a sum, and "add and write" its stores, but both use only the first 32
// KiB of all buffers together, again and again. A loop of kind "add there" does the
// same where the buffers lie. No store waits for a sum.
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

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Output of the programs that instructions.py counts.

#include <cstdio>

#include "harness/counted_heap.h"

namespace aikido {

// The properties of the build that change the number of instructions, besides the
// sources.
inline void print_build() {
#if defined(__clang__)
  constexpr const char* kCompiler = "clang";
  constexpr int kVersion = __clang_major__;
#else
  constexpr const char* kCompiler = "gcc";
  constexpr int kVersion = __GNUC__;
#endif
#if defined(__x86_64__)
  constexpr const char* kArchitecture = "x86_64";
#elif defined(__aarch64__)
  constexpr const char* kArchitecture = "aarch64";
#else
  constexpr const char* kArchitecture = "other";
#endif
  std::printf("%s %d, %s\n", kCompiler, kVersion, kArchitecture);
}

inline void print_allocations() {
  std::printf("%llu allocations\n",
              static_cast<unsigned long long>(testing::num_allocations.load()));
}

}  // namespace aikido

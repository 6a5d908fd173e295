// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Elementwise sum of several buffers in host memory, each with a factor of its own.
// Pure functions: any thread, no allocation, no blocking. Defined for fp16, bf16, fp32,
// fp64 and complex numbers.
//
// The sources are folded in the given order, without fused multiply-add, as in
// kernels/reduce.h. fp16 and bf16 accumulate in fp32 and are rounded once.

#include <cstddef>

#include "base/types.h"
#include "kernels/reduce.h"

namespace aikido::kernels {

// out[i] = factors[0] * sources[0][i] + factors[1] * sources[1][i] + ... for i in [0,
// count). Requires num_sources >= 1. `out` may be one of the sources. Any other overlap
// between `out` and a source is undefined. Pointers need no alignment. A factor is
// converted to the accumulator's type first.
using WeightedSumFn = void (*)(void* out, const void* const* sources,
                               const double* factors, size_t num_sources, size_t count);

// Fastest function that this CPU can run. nullptr if the sum is not defined for the
// dtype.
[[nodiscard]] WeightedSumFn find_weighted_sum(DType dtype);

// The same of one instruction set, for tests. All sets give the same bits. nullptr also
// if `set` is not among available_sets().
[[nodiscard]] WeightedSumFn find_weighted_sum(DType dtype, InstructionSet set);

}  // namespace aikido::kernels

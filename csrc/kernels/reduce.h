// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Elementwise reduction of several buffers in host memory, in one pass: each source is
// read once and the result is written once. Pure functions: any thread, no allocation,
// no blocking.
//
// Defined operations:
//   integers  sum avg product min max band bor bxor; wrap around on overflow
//   bool      all of these except avg; sum, max and bor are "or"; product, min and
//             band are "and"; a non-zero byte is true, results are 0 or 1
//   floating  sum avg product min max
//   complex   sum avg product
// avg uses the function of sum: the caller passes scale = 1 / contributors. For
// integers the sum wraps first, and is then divided by the number of contributors,
// rounding towards zero. NCCL gives the same.
//
// Note [same bits everywhere]
// The sources are folded strictly in the given order, without fused multiply-add. So
// each instruction set, and the device twin, gives the same bits for the same list.
// fp16 and bf16 accumulate in fp32 over all sources, are scaled in fp32 and are rounded
// once. A NaN stays a NaN, but its sign and payload differ between machines. min and
// max give NaN if any source is NaN. If two values compare equal (-0 and +0), they give
// the earlier source. The complex product is the schoolbook formula (ac - bd) + i(ad +
// bc), without the recovery of infinities of C's Annex G.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"

namespace aikido::kernels {

// out[i] = scale * fold(sources[0][i], sources[1][i], ...) for i in [0, count).
// Requires num_sources >= 1. `out` may be one of the sources. Any other overlap between
// `out` and a source is undefined. Pointers need no alignment; with count 0 none is
// read. `scale` is converted to the accumulator's type first; 1.0 changes no bit. The
// avg of integers divides by the whole number nearest to 1 / scale, with 0 < scale < 1.
// All other functions for integers and bool ignore `scale`.
using ReduceFn = void (*)(void* out, const void* const* sources, size_t num_sources,
                          size_t count, double scale);

// Fastest function that this CPU can run. nullptr if the pair is not defined.
[[nodiscard]] ReduceFn find_reduce(ReduceOp op, DType dtype);

enum class InstructionSet : uint8_t { kPortable, kAvx2, kAvx512, kNeon };

// "portable", "avx2", ...
[[nodiscard]] const char* name_of(InstructionSet set);

// Sets that are built in and supported by this CPU, slowest first. kPortable is always
// the first.
[[nodiscard]] std::vector<InstructionSet> available_sets();

// As find_reduce(op, dtype), but of one set, for tests and benchmarks. nullptr also if
// `set` is not among available_sets().
[[nodiscard]] ReduceFn find_reduce(ReduceOp op, DType dtype, InstructionSet set);

}  // namespace aikido::kernels

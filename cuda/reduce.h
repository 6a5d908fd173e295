// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Device twin of csrc/kernels/reduce.h: the same operations and dtypes, the same order
// of folding and, apart from NaN payloads, the same bits. See note [same bits
// everywhere] there. Any thread. The current device must be that of the stream.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/status.h"
#include "base/types.h"

namespace aikido::cuda {

// Limit of the sources, whose pointers are arguments of a single launch. All sources of
// a call need one launch, because a chain through `out` would round fp16 and bf16 more
// than once, and would overwrite a source that is also `out`.
inline constexpr size_t kMaxReduceSources = 128;

// out[i] = scale * fold(sources[0][i], sources[1][i], ...) for i in [0, count), queued
// on `stream`. Does not block. `sources` is read before the call returns. The buffers
// must be device memory, or memory that the device can reach, and are read until the
// stream has passed the kernel. `out` may be one of the sources; any other overlap is
// undefined. No alignment is needed, but buffers at multiples of 16 bytes are fastest.
// With one source this is a copy, or a scaling in or out of place.
//
// kUnsupported: the pair is not defined, or num_sources > kMaxReduceSources.
// kInvalidArgument: num_sources == 0. Otherwise as check_cuda().
Status reduce(ReduceOp op, DType dtype, void* out, const void* const* sources,
              size_t num_sources, size_t count, double scale, cudaStream_t stream);

// As reduce(), but in place, with the result in all of `buffers`, in one pass. This is
// an allreduce of buffers that one device can reach.
Status reduce_to_all(ReduceOp op, DType dtype, void* const* buffers, size_t num_buffers,
                     size_t count, double scale, cudaStream_t stream);

}  // namespace aikido::cuda

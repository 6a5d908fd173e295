// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Device twin of csrc/kernels/reduce.h: the same table of operations and dtypes, the
// same order of folding and, but for NaN payloads, the same bits; see there, note [same
// bits everywhere]. Any thread; the current device must be that of the stream.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/status.h"
#include "base/types.h"

namespace aikido::cuda {

// So many pointers travel as an argument of the one launch. All sources of a call go
// into one launch, because a chain through `out` would round fp16 and bf16 more than
// once and overwrite a source that `out` stands for.
inline constexpr size_t kMaxReduceSources = 128;

// out[i] = scale * fold(sources[0][i], sources[1][i], ...) for i in [0, count), queued
// on `stream`; does not block. `sources` is read before the call returns, the buffers
// (device memory, or memory the device can reach) until the stream has passed it. `out`
// may be one of the sources; any other overlap is undefined. No alignment is needed;
// with all buffers at multiples of 16 bytes it is fastest. With scale = 1.0 and one
// source this is a copy, with one source a scaling in or out of place.
//
// unsupported: the pair is not defined, or num_sources > kMaxReduceSources.
// invalid_argument: num_sources == 0. Else as check_cuda says.
Status reduce(ReduceOp op, DType dtype, void* out, const void* const* sources,
              size_t num_sources, size_t count, double scale, cudaStream_t stream);

// The same in place, with the result in all of `buffers`, in one pass: an allreduce of
// buffers that one device can reach.
Status reduce_to_all(ReduceOp op, DType dtype, void* const* buffers, size_t num_buffers,
                     size_t count, double scale, cudaStream_t stream);

}  // namespace aikido::cuda

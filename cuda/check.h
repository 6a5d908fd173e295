// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Conversion of a CUDA runtime error into a Status that names the call, the device and
// the size. Any thread.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/status.h"

namespace aikido::cuda {

// Ok for cudaSuccess. Otherwise the code tells what the caller can do: kRetryLater if
// memory ran out, kUnsupported if there is no usable device or no code for it,
// kInternal for all else. `call` is the name of the function, `bytes` the size in
// question (0: none). Clears the error in the runtime, because otherwise the next
// launch would report it.
inline Status check_cuda(cudaError_t error, const char* call, size_t bytes) {
  if (error == cudaSuccess) return Status::ok();
  static_cast<void>(cudaGetLastError());
  Code code = Code::kInternal;
  if (error == cudaErrorMemoryAllocation) code = Code::kRetryLater;
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
      error == cudaErrorNoKernelImageForDevice || error == cudaErrorStubLibrary)
    code = Code::kUnsupported;
  int device = -1;
  std::string where = "no current device";
  if (cudaGetDevice(&device) == cudaSuccess) where = concat("device ", device);
  const std::string size = bytes != 0 ? concat(" of ", bytes, " bytes") : "";
  return {code, concat(call, size, " failed on ", where, ": ",
                       cudaGetErrorString(error), " (", cudaGetErrorName(error), ")")};
}

}  // namespace aikido::cuda

// Runs a call of the CUDA runtime about `bytes` bytes, and returns from the function
// with a failure.
#define AIKIDO_TRY_CUDA(call, bytes) \
  AIKIDO_TRY(::aikido::cuda::check_cuda((call), #call, (bytes)))

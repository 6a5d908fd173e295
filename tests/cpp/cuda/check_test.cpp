// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "cuda/check.h"

#include <string>

#include "harness/catch.h"

namespace aikido::cuda {
namespace {

Status try_call(cudaError_t result) {
  AIKIDO_TRY_CUDA(result, 24);
  return {Code::kRetryLater, "went on"};
}

TEST_CASE("a CUDA error names the call, the size and what CUDA says") {
  const Status status = check_cuda(cudaErrorInvalidValue, "cudaMemcpyAsync", 4096);
  REQUIRE(status.code() == Code::kInternal);
  REQUIRE(status.message().find("cudaMemcpyAsync of 4096 bytes failed on ") == 0);
  REQUIRE(status.message().find("device") != std::string::npos);
  REQUIRE(status.message().find("cudaErrorInvalidValue") != std::string::npos);
  const Status sizeless = check_cuda(cudaErrorInvalidValue, "cudaStreamCreate", 0);
  REQUIRE(sizeless.message().find("cudaStreamCreate failed on ") == 0);
}

TEST_CASE("the code of a CUDA error says what the caller can do") {
  REQUIRE(check_cuda(cudaSuccess, "x", 1).is_ok());
  REQUIRE(check_cuda(cudaErrorMemoryAllocation, "x", 1).code() == Code::kRetryLater);
  for (const auto error : {cudaErrorNoDevice, cudaErrorInsufficientDriver,
                           cudaErrorNoKernelImageForDevice})
    REQUIRE(check_cuda(error, "x", 1).code() == Code::kUnsupported);
}

TEST_CASE("the try macro leaves the function on failure only") {
  REQUIRE(try_call(cudaSuccess).message() == "went on");
  REQUIRE(try_call(cudaErrorInvalidValue).message().find("result of 24 bytes") == 0);
}

}  // namespace
}  // namespace aikido::cuda

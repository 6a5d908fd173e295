// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Runner of the device tests. Without a device it prints a line with the reason, runs
// the tests that need no device, and returns 77. CTest counts this as skipped
// (SKIP_RETURN_CODE).
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif
#include <cuda_runtime_api.h>

#include <cstdio>

int main(int argc, char** argv) {
  Catch::Session session;
  if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error == cudaSuccess && num_devices > 0) return session.run();
  session.configData().testsOrTags = {"~[gpu]"};
  if (const int failed = session.run(); failed != 0) return failed;
  std::printf("skipped: the tests tagged [gpu], %d devices (%s)\n", num_devices,
              cudaGetErrorString(error));
  return 77;
}

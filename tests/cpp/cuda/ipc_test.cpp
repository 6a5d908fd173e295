// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "cuda/ipc.h"

#include <cuda_runtime_api.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/check.h"
#include "cuda/reduce.h"
#include "harness/catch.h"

extern char** environ;

namespace aikido::cuda {
namespace {

constexpr const char* kVariable = "AIKIDO_TEST_MEMORY_HANDLE";
constexpr size_t kCount = 1000;

void require_ok(const Status& status) {
  INFO(status.message());
  REQUIRE(status.is_ok());
}

float* device_floats(float value, size_t count) {
  void* data = nullptr;
  require_ok(check_cuda(cudaMalloc(&data, count * sizeof(float)), "cudaMalloc", 0));
  const std::vector<float> host(count, value);
  require_ok(check_cuda(
      cudaMemcpy(data, host.data(), count * sizeof(float), cudaMemcpyHostToDevice),
      "cudaMemcpy", 0));
  return static_cast<float*>(data);
}

std::vector<float> on_host(const float* data, size_t count) {
  std::vector<float> host(count);
  require_ok(check_cuda(
      cudaMemcpy(host.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost),
      "cudaMemcpy", 0));
  return host;
}

MemoryHandle shared(const void* data) {
  auto handle = share_memory(0, data);
  require_ok(handle.status());
  return *handle;
}

TEST_CASE("memory that is not on a device cannot be shared") {
  const float host = 0;
  REQUIRE_FALSE(share_memory(0, &host).is_ok());
}

TEST_CASE("memory that nobody has shared cannot be opened") {
  OpenedMemory memory(0);
  REQUIRE_FALSE(memory.open(MemoryHandle{}).is_ok());
}

TEST_CASE("a failed open is not reported by a later launch", "[gpu]") {
  OpenedMemory memory(0);
  REQUIRE_FALSE(memory.open(MemoryHandle{}).is_ok());
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a handle says where in its allocation memory lies", "[gpu]") {
  float* const data = device_floats(0, kCount);
  const MemoryHandle whole = shared(data);
  const MemoryHandle part = shared(data + 10);
  CHECK(part.base == whole.base);
  CHECK(part.number == whole.number);
  CHECK(part.offset == whole.offset + 10 * sizeof(float));
  REQUIRE(cudaFree(data) == cudaSuccess);
  float* const next = device_floats(0, kCount);
  CHECK(shared(next).number != whole.number);
  REQUIRE(cudaFree(next) == cudaSuccess);
}

// Hidden test: it runs as the other process of the next test.
TEST_CASE("adds its numbers to memory of its parent", "[.][gpu][ipc-child]") {
  const char* const text = std::getenv(kVariable);
  REQUIRE(text != nullptr);
  MemoryHandle handle;
  REQUIRE(std::strlen(text) == 2 * sizeof handle);
  for (size_t i = 0; i < sizeof handle; ++i)
    reinterpret_cast<unsigned char*>(&handle)[i] = static_cast<unsigned char>(
        std::stoi(std::string(text + 2 * i, 2), nullptr, 16));
  OpenedMemory memory(0);
  auto opened = memory.open(handle);
  require_ok(opened.status());
  CHECK(*memory.open(handle) == *opened);
  float* const own = device_floats(2, kCount);
  void* const buffers[] = {own, *opened};
  require_ok(
      reduce_to_all(ReduceOp::kSum, DType::kFloat32, buffers, 2, kCount, 1.0, nullptr));
  CHECK(on_host(own, kCount) == std::vector<float>(kCount, 3));
}

TEST_CASE("another process reads and writes shared memory", "[gpu]") {
  float* const data = device_floats(1, 2 * kCount);
  const MemoryHandle handle = shared(data + kCount);
  std::string text;
  for (size_t i = 0; i < sizeof handle; ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    const auto byte = reinterpret_cast<const unsigned char*>(&handle)[i];
    text += {kDigits[byte / 16], kDigits[byte % 16]};
  }
  REQUIRE(::setenv(kVariable, text.c_str(), 1) == 0);
  std::string name = "/proc/self/exe", test = "[ipc-child]";
  char* const arguments[] = {name.data(), test.data(), nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, name.c_str(), nullptr, nullptr, arguments, environ) ==
          0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(on_host(data, kCount) == std::vector<float>(kCount, 1));
  CHECK(on_host(data + kCount, kCount) == std::vector<float>(kCount, 3));
  REQUIRE(cudaFree(data) == cudaSuccess);
}

}  // namespace
}  // namespace aikido::cuda

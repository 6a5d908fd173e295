// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "cuda/ipc.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "cuda/check.h"

namespace aikido::cuda {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(MemoryHandle::allocation));

// Two functions of the driver only. They are looked up at run time, because this
// library is also loaded on machines without a driver.
struct Driver {
  CUresult (*range)(CUdeviceptr*, size_t*, CUdeviceptr) = nullptr;
  CUresult (*attribute)(void*, CUpointer_attribute, CUdeviceptr) = nullptr;
};

const Driver& driver() {
  static const Driver kDriver = [] {
    Driver found;
    void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) return found;
    found.range = reinterpret_cast<decltype(found.range)>(
        ::dlsym(library, "cuMemGetAddressRange_v2"));
    found.attribute = reinterpret_cast<decltype(found.attribute)>(
        ::dlsym(library, "cuPointerGetAttribute"));
    return found;
  }();
  return kDriver;
}

// A process id is not enough: processes in different containers can have the same id.
uint64_t own_number() {
  static const uint64_t kNumber = [] {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  }();
  return kNumber;
}

}  // namespace

Result<MemoryHandle> share_memory(int device, const void* data) {
  AIKIDO_TRY_CUDA(cudaSetDevice(device), 0);
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  unsigned long long number = 0;
  if (driver().range == nullptr || driver().attribute == nullptr ||
      driver().range(&base, &bytes, address) != CUDA_SUCCESS ||
      driver().attribute(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) !=
          CUDA_SUCCESS) {
    return Status(Code::kUnsupported,
                  "the driver of the device does not say of what allocation the memory "
                  "of a tensor is a part");
  }
  cudaIpcMemHandle_t allocation;
  const cudaError_t error =
      cudaIpcGetMemHandle(&allocation, reinterpret_cast<void*>(base));
  if (const Status failure = check_cuda(error, "cudaIpcGetMemHandle", 0);
      failure.has_failed()) {
    return Status(
        Code::kUnsupported,
        concat("this memory cannot be shared with other processes (", failure.message(),
               "), as that of expandable segments (PYTORCH_CUDA_ALLOC_CONF) "
               "cannot"));
  }
  MemoryHandle handle{};
  std::memcpy(handle.allocation, &allocation, sizeof allocation);
  handle.owner = own_number();
  handle.base = base;
  handle.number = number;
  handle.offset = address - base;
  return handle;
}

OpenedMemory::~OpenedMemory() {
  if (mappings_.empty() || cudaSetDevice(device_) != cudaSuccess) return;
  for (const auto& [where, mapping] : mappings_)
    static_cast<void>(cudaIpcCloseMemHandle(mapping.data));
}

Result<void*> OpenedMemory::open(const MemoryHandle& handle) {
  AIKIDO_TRY_CUDA(cudaSetDevice(device_), 0);
  const std::lock_guard lock(mutex_);
  const std::pair where(handle.owner, handle.base);
  auto it = mappings_.find(where);
  if (it != mappings_.end() && it->second.number != handle.number) {
    AIKIDO_TRY_CUDA(cudaIpcCloseMemHandle(it->second.data), 0);
    mappings_.erase(it);
    it = mappings_.end();
  }
  if (it == mappings_.end()) {
    if (mappings_.size() == kMost) AIKIDO_TRY(close_oldest());
    cudaIpcMemHandle_t allocation;
    std::memcpy(&allocation, handle.allocation, sizeof allocation);
    void* data = nullptr;
    AIKIDO_TRY_CUDA(
        cudaIpcOpenMemHandle(&data, allocation, cudaIpcMemLazyEnablePeerAccess), 0);
    it = mappings_.emplace(where, Mapping{handle.number, data}).first;
  }
  it->second.used = ++num_calls_;
  return static_cast<void*>(static_cast<std::byte*>(it->second.data) + handle.offset);
}

Status OpenedMemory::close_oldest() {
  AIKIDO_TRY_CUDA(cudaDeviceSynchronize(), 0);
  const auto oldest = std::min_element(
      mappings_.begin(), mappings_.end(),
      [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  static_cast<void>(cudaIpcCloseMemHandle(oldest->second.data));
  mappings_.erase(oldest);
  return Status::ok();
}

}  // namespace aikido::cuda

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/device/cuda_memory.h"

#include <c10/core/DeviceGuard.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <mutex>

#include "c10d/common/error.h"
#include "cuda/check.h"
#include "cuda/ipc.h"
#include "cuda/reduce.h"

namespace aikido::adapter {
namespace {

static_assert(sizeof(cuda::MemoryHandle) <= sizeof(DeviceMemory::IpcHandle));

class CudaMemory final : public DeviceMemory {
 public:
  IpcHandle share(const at::Tensor& tensor) override {
    const c10::DeviceGuard restores(tensor.device());
    auto shared = cuda::share_memory(tensor.device().index(), tensor.const_data_ptr());
    raise_if_failed(shared.status());
    IpcHandle handle{};
    std::memcpy(handle.data(), &*shared, sizeof *shared);
    return handle;
  }

  void* open(c10::Device device, const IpcHandle& handle) override {
    const c10::DeviceGuard restores(device);
    cuda::MemoryHandle shared;
    std::memcpy(&shared, handle.data(), sizeof shared);
    auto opened = opened_on(device.index()).open(shared);
    raise_if_failed(opened.status());
    return *opened;
  }

  void reduce_to_all(ReduceOp op, DType dtype, const std::vector<void*>& buffers,
                     size_t count, double scale, const c10::Stream& stream) override {
    const c10::DeviceGuard restores(stream.device());
    raise_if_failed(
        cuda::check_cuda(cudaSetDevice(stream.device_index()), "cudaSetDevice", 0));
    raise_if_failed(
        cuda::reduce_to_all(op, dtype, buffers.data(), buffers.size(), count, scale,
                            static_cast<cudaStream_t>(stream.native_handle())));
  }

  bool is_capturing(const c10::Stream& stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(
        static_cast<cudaStream_t>(stream.native_handle()), &status);
    // While another stream records a graph in the global mode, even a query of the
    // default stream fails.
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    return status != cudaStreamCaptureStatusNone;
  }

 private:
  cuda::OpenedMemory& opened_on(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    return opened_.try_emplace(device, device).first->second;
  }

  std::mutex mutex_;
  std::map<c10::DeviceIndex, cuda::OpenedMemory> opened_;  // guarded by mutex_
};

}  // namespace

std::shared_ptr<DeviceMemory> make_cuda_memory() {
  return std::make_shared<CudaMemory>();
}

}  // namespace aikido::adapter

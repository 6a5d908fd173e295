// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Interface to memory of a device type that several processes of one host can reach
// directly; see ipc.h. cuda_memory.h implements it for CUDA. An extension of torch may
// provide its own. All methods from any thread, and all throw c10::Error.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/types.h"

namespace aikido::adapter {

class DeviceMemory {
 public:
  // Identifies the memory of a tensor for other processes. Sent as it is.
  using IpcHandle = std::array<std::byte, 96>;

  virtual ~DeviceMemory() = default;
  // Requires: contiguous. The tensor must live as long as others may use the handle.
  virtual IpcHandle share(const at::Tensor& tensor) = 0;
  // Address, in this process, of memory that another process has shared.
  virtual void* open(c10::Device device, const IpcHandle& handle) = 0;
  // Queued on `stream`, in one pass: each buffer gets scale * fold(all buffers, in
  // their order), for `count` elements.
  virtual void reduce_to_all(ReduceOp op, DType dtype,
                             const std::vector<void*>& buffers, size_t count,
                             double scale, const c10::Stream& stream) = 0;
  // True if the stream records a graph. Called only if torch has no such query
  // (compat.h).
  virtual bool is_capturing(const c10::Stream& stream) = 0;

  // Implementation for devices of this type. Null: none.
  static std::shared_ptr<DeviceMemory> of(c10::DeviceType type);
  // Sets the implementation for this process. Call it before the first group is made.
  static void offer(c10::DeviceType type, std::shared_ptr<DeviceMemory> memory);
};

}  // namespace aikido::adapter

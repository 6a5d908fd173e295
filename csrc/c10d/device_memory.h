// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Memory of a device that several processes of one host reach directly: what aikido
// asks of a type of device for it (ipc.h). CUDA's is in cuda_memory.h; an extension of
// torch may bring its own. All methods from any thread, and all throw c10::Error.

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
  // By which another process finds the memory of a tensor; travels as it is.
  using Handle = std::array<std::byte, 96>;

  virtual ~DeviceMemory() = default;
  // Requires: contiguous. The tensor lives for as long as others may use the handle.
  virtual Handle share(const at::Tensor& tensor) = 0;
  // What another process has shared, as this one sees it.
  virtual void* open(c10::Device device, const Handle& handle) = 0;
  // In one pass, queued on `stream`: each buffer gets scale * fold(all buffers, in
  // their order), of `count` elements.
  virtual void reduce_to_all(ReduceOp op, DType dtype,
                             const std::vector<void*>& buffers, size_t count,
                             double scale, const c10::Stream& stream) = 0;
  // Whether the stream records a graph; only asked where torch cannot tell (compat.h).
  virtual bool is_capturing(const c10::Stream& stream) = 0;

  // What tensors on devices of this type go by; null: there is none.
  static std::shared_ptr<DeviceMemory> of(c10::DeviceType type);
  // Of the process, before its first group.
  static void offer(c10::DeviceType type, std::shared_ptr<DeviceMemory> memory);
};

}  // namespace aikido::adapter

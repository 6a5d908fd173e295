// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Device memory that several processes of a host use (CUDA IPC). The owner gives a
// handle away, and the receiver reads and writes the memory. The mapping outlives the
// owner's process. Does not use torch.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "base/status.h"

namespace aikido::cuda {

// Sent between processes as it is in memory.
struct MemoryHandle {
  std::byte allocation[64];  // cudaIpcMemHandle_t
  uint64_t owner;            // random number of the owner's process
  uint64_t base;             // address of the allocation in the owner
  uint64_t number;           // number of the allocation in the owner; never reused
  uint64_t offset;           // of the shared memory, from `base`
};

// Handle of the memory at `data` on `device`, for other processes. Any thread.
// kUnsupported if the allocation cannot be shared, such as an allocation of expandable
// segments.
Result<MemoryHandle> share_memory(int device, const void* data);

// Mapped memory of other processes. An allocation is mapped at its first use and stays
// mapped, and so in use on the device. It is unmapped if its owner has another
// allocation at its address, if kMost younger allocations are open, or at the end. To
// unmap, this waits for all work of this process on the device. Any thread.
class OpenedMemory {
 public:
  static constexpr size_t kMost = 256;

  explicit OpenedMemory(int device) : device_(device) {}
  ~OpenedMemory();
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;

  // Returns an address that stays valid for work that is queued before the next kMost
  // calls, and until the owner shares another allocation at the same address. Not for
  // handles of this process.
  Result<void*> open(const MemoryHandle& handle);

 private:
  struct Mapping {
    uint64_t number = 0;
    void* data = nullptr;
    uint64_t used = 0;  // number of the last call that used it
  };
  Status close_oldest();

  const int device_;
  std::mutex mutex_;
  // Guarded by mutex_. By the owner and its address there.
  std::map<std::pair<uint64_t, uint64_t>, Mapping> mappings_;
  uint64_t num_calls_ = 0;
};

}  // namespace aikido::cuda

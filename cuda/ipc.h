// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Memory of one device that several processes of a host use (CUDA IPC): who has it
// gives a handle away, and who gets that reads and writes there. The mapping outlives
// the process that has given it. No torch.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "base/status.h"

namespace aikido::cuda {

// Travels between processes as it is.
struct MemoryHandle {
  std::byte allocation[64];  // cudaIpcMemHandle_t
  uint64_t owner;            // the process, by a number that it has drawn
  uint64_t base;             // of the allocation, there
  uint64_t number;           // of the allocation there: never used again
  uint64_t offset;           // of what was meant, from `base`
};

// Of memory at `data` on `device`, for other processes. Any thread. kUnsupported where
// the allocation cannot be shared, as one of expandable segments.
Result<MemoryHandle> share_memory(int device, const void* data);

// What others have shared, as this process sees it: each allocation is mapped when it
// is first asked for, and stays mapped (and so taken on the device) until its owner has
// another one at its address, kMost younger ones are open, or the end. What makes room
// waits for all that this process does on the device. Any thread.
class OpenedMemory {
 public:
  static constexpr size_t kMost = 256;

  explicit OpenedMemory(int device) : device_(device) {}
  ~OpenedMemory();
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;

  // What is returned stays good for what is queued before the next kMost calls, and
  // until the owner shares another allocation at the same address. Not for a handle of
  // this process.
  Result<void*> open(const MemoryHandle& handle);

 private:
  struct Mapping {
    uint64_t number = 0;
    void* data = nullptr;
    uint64_t used = 0;  // the call that has asked for it last
  };
  Status close_oldest();

  const int device_;
  std::mutex mutex_;
  // Guarded by mutex_; by the owner and the address there.
  std::map<std::pair<uint64_t, uint64_t>, Mapping> mappings_;
  uint64_t num_calls_ = 0;
};

}  // namespace aikido::cuda

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Shared-memory buffer pool of a process: blocks in which other processes of the host
// find large payloads (shm_leases.h has the reasons). One pool for all groups. Progress
// thread, except fd().

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "transport/shm/mapping.h"
#include "transport/shm/shared_memory.h"
#include "transport/shm/shm_leases.h"

namespace aikido::transport {

// Names bytes that several members get. Equal names mean equal bytes, which share one
// block.
struct Content {
  std::weak_ptr<const void>
      owner;  // owner of the bytes; once it is gone, nothing matches
  uint64_t part = 0;
  uint64_t offset = 0;
  size_t bytes = 0;
  size_t num_readers = 1;
};

class ShmBufferPool;

// Blocks that one reader has.
class LeaseGrantor {
 public:
  // True if the reader takes payloads of this size from blocks.
  bool takes(size_t bytes) const;
  // True if the reader may have one more block.
  bool has_credit();
  // Puts the bytes into a block that the reader can read, unless a block has them
  // already. Returns the number for the frame; 0: no block is free. Requires: takes()
  // and has_credit().
  uint8_t grant(const std::byte* data, const Content& content);
  // True if the reader has so few blocks that a waiting sender can continue.
  bool has_room();

 private:
  friend class ShmBufferPool;
  LeaseGrantor(ShmBufferPool* shm_pool, std::shared_ptr<SharedMemory> memory, int pid)
      : shm_pool_(shm_pool),
        memory_(std::move(memory)),
        state_(memory_->granted()),
        pid_(pid) {}
  void collect();
  // Blocks that the reader has and does not keep. What it keeps it may return
  // meanwhile.
  size_t num_circulating() const {
    return blocks_.size() - std::min<size_t>(blocks_.size(), state_->kept.load());
  }
  bool is_settled();

  ShmBufferPool* shm_pool_;
  std::shared_ptr<SharedMemory> memory_;
  LeaseState* state_;
  int pid_;
  uint64_t seen_ = 0;            // last value of `returned`
  std::vector<uint8_t> blocks_;  // their numbers, from 0
};

class ShmBufferPool {
 public:
  // kRetryLater with the reason if the kernel gives no memory.
  static Result<std::unique_ptr<ShmBufferPool>> make();
  ShmBufferPool(const ShmBufferPool&) = delete;
  ShmBufferPool& operator=(const ShmBufferPool&) = delete;

  // Descriptor for the other processes. Any thread.
  int fd() const { return fd_.get(); }

  // Lends to the process `pid` (0: unknown), with which `memory` is shared. After its
  // link is gone, its blocks come back when it returns them or is dead.
  std::shared_ptr<LeaseGrantor> grant_to(std::shared_ptr<SharedMemory> memory, int pid);
  // Takes returned blocks, and forgets readers without blocks and link.
  void collect();

 private:
  friend class LeaseGrantor;
  struct Block {
    size_t num_readers = 0;
    size_t num_to_come = 0;  // further readers of the content
    Content content;
    // True if the content may still be sent to others.
    bool is_of_use() const { return num_to_come > 0 && !content.owner.expired(); }
  };
  ShmBufferPool(Fd fd, Mapping mapping)
      : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  std::optional<uint8_t> find(const Content& content) const;
  std::optional<uint8_t> find_free();
  // True if readers may keep a block: the free blocks suffice for all that circulate.
  bool has_spare() const;
  std::byte* at(uint8_t block) const { return mapping_.data() + block * kBlockBytes; }

  Fd fd_;
  Mapping mapping_;
  std::array<Block, kNumBlocks> blocks_;
  size_t oldest_ = 0;  // start of the search for a block to reuse
  std::vector<std::shared_ptr<LeaseGrantor>> grantors_;
};

}  // namespace aikido::transport

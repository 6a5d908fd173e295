// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Buffer leases: the blocks of another process (`shm_buffer_pool.h`) that this process
// holds. This file has the state that both processes see, and the reader's half (our
// design).
//
// Note [payloads beside the ring]
// A large payload is copied into a block of the sender, and the ring carries only its
// header with the number of the block. So a payload for several members of the host is
// copied once for all of them. A contribution needs no second copy: the reader keeps
// the block until it has folded the contribution. The sender may write to a block again
// once each reader has returned the block, or is dead. It never waits for that: without
// a free block it writes the payload into the ring. Blocks that a reader keeps do not
// count as circulating, so the sender always goes on. It says whether it has enough
// other blocks that the reader may keep one.
//
// Reader and writer have one thread each.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/buffer_pool.h"
#include "base/fd.h"
#include "base/status.h"
#include "transport/shm/mapping.h"

namespace aikido::transport {

inline constexpr size_t kBlockBytes = 256 << 10;
inline constexpr size_t kNumBlocks = 64;
// Smaller payloads are copied as fast as a block is found.
inline constexpr size_t kLeastLeased = 16 << 10;
// Largest number of blocks that circulate between a sender and one reader. With more
// blocks, the first would have left the caches before they are read. A sender that
// waits continues when only that many circulate as the second number says.
inline constexpr size_t kMostLeased = 4;
inline constexpr size_t kFewLeased = kMostLeased / 2;

// State in the shared memory; all zero at the beginning. PROTOCOL.md has the layout.
struct LeaseState {
  // Written by the reader. is_open: it has the blocks. is_done: it will read no block
  // any more. returned: number of blocks returned since the beginning. kept: number of
  // blocks that it keeps now.
  alignas(64) std::atomic<uint32_t> is_open;
  std::atomic<uint32_t> is_done;
  std::atomic<uint64_t> returned;
  std::atomic<uint32_t> kept;
  // Written by the writer. leased: number of blocks leased since the beginning.
  // may_keep: 1 if the reader may keep a block.
  alignas(64) std::atomic<uint64_t> leased;
  std::atomic<uint32_t> may_keep;
  // Set to 1 by the writer, and to 0 by the reader that returns the block.
  alignas(64) std::array<std::atomic<uint8_t>, kNumBlocks> is_out;
};
static_assert(sizeof(LeaseState) == 192);
static_assert(std::atomic<uint8_t>::is_always_lock_free);

class SharedMemory;

// Blocks of one other process. Kept blocks may outlive the link to that process.
class LeaseHolder final : public Buffer::Home,
                          public std::enable_shared_from_this<LeaseHolder> {
 public:
  // `blocks` is the descriptor that the other process has sent; `memory` is shared with
  // it. kProtocol: the descriptor is no such memory. kRetryLater: it cannot be mapped.
  static Result<std::shared_ptr<LeaseHolder>> open(
      const Fd& blocks, std::shared_ptr<SharedMemory> memory);
  ~LeaseHolder() override;

  // From now on `tell` is called when a block was returned or kept; null: no more
  // calls.
  void on_returned(std::function<void()> tell) { tell_ = std::move(tell); }

  // Payload of a frame that names `block`, which is at least 1. Null: the sender has
  // leased no such block.
  const std::byte* find(uint8_t block, size_t bytes) const;
  // Keeps the block until the Buffer is destroyed. The Buffer is read-only. Empty: the
  // writer needs the block, or there are no bytes.
  Buffer keep(uint8_t block, size_t bytes);
  // Returns the block to the sender.
  void give_back(uint8_t block);

  // True if so few blocks circulate that the writer continues.
  bool has_room() const;

 private:
  LeaseHolder(Mapping blocks, std::shared_ptr<SharedMemory> memory);
  void take_back(std::byte* data, size_t bytes) override;
  std::byte* at(uint8_t block) const {
    return blocks_.data() + (block - 1) * kBlockBytes;
  }

  Mapping blocks_;
  std::shared_ptr<SharedMemory> memory_;
  LeaseState* state_;
  std::function<void()> tell_;
};

}  // namespace aikido::transport

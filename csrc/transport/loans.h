// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What one process has of another's blocks (outbox.h): the state that both see, and
// the reader's half of it. Our design.
//
// Note [payloads beside the ring]
// A large payload is copied into a block of the sender's, and the ring has only its
// header with the number of that block. So what several members of the host are to get
// is copied once for all of them, and what is to be folded needs no second copy: the
// reader keeps the block until it has folded it. A block belongs to the sender again
// once each reader has given it back, or is dead; the sender neither writes to it
// before, nor does it wait for that: where it has none it writes the payload into the
// ring. A reader may keep half of what one sender lends it, so that the other half
// always moves on.
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
#include "transport/mapping.h"

namespace aikido::transport {

inline constexpr size_t kBlockBytes = 256 << 10;
inline constexpr size_t kNumBlocks = 32;
// Smaller payloads are copied as fast as a block is found.
inline constexpr size_t kLeastLent = 16 << 10;
// Blocks that one reader has at most: more would no longer be in the caches when it
// comes to them. And how many of them it may keep; with no more than these out, a
// sender that waits goes on, so that it never waits for one that is kept.
inline constexpr size_t kMostLent = 4;
inline constexpr size_t kMostKept = kMostLent / 2;

// In the memory that both share; all zero in the beginning. PROTOCOL.md has it.
struct LoanState {
  // By the reader: it has the blocks; it looks at none any more, for good; how many it
  // has given back since the beginning.
  alignas(64) std::atomic<uint32_t> is_open;
  std::atomic<uint32_t> is_done;
  std::atomic<uint64_t> returned;
  // By the writer: how many it has lent since the beginning.
  alignas(64) std::atomic<uint64_t> lent;
  // 1 by the writer, 0 by the reader who gives it back.
  alignas(64) std::array<std::atomic<uint8_t>, kNumBlocks> is_out;
};
static_assert(sizeof(LoanState) == 192);
static_assert(std::atomic<uint8_t>::is_always_lock_free);

class SharedMemory;

// The blocks of one other process. Kept blocks may outlive the link to it.
class Borrower final : public Buffer::Home,
                       public std::enable_shared_from_this<Borrower> {
 public:
  // `blocks` is what the other process has sent; `memory` is shared with it. kProtocol:
  // it is nothing of the kind. kRetryLater: it cannot be mapped.
  static Result<std::shared_ptr<Borrower>> open(const Fd& blocks,
                                                std::shared_ptr<SharedMemory> memory);
  ~Borrower() override;

  // From now on it hears when a block was given back; null: no more.
  void on_returned(std::function<void()> tell) { tell_ = std::move(tell); }

  // The payload of a frame that names `block`, which is 1 or more; null: the sender has
  // lent no such thing.
  const std::byte* find(uint8_t block, size_t bytes) const;
  // Keeps it until the Buffer goes, which is read only. Empty: enough are kept, or it
  // has no bytes.
  Buffer keep(uint8_t block, size_t bytes);
  // The sender may use it again.
  void give_back(uint8_t block);

  // The writer has enough of its blocks to go on.
  bool has_room() const;

 private:
  Borrower(Mapping blocks, std::shared_ptr<SharedMemory> memory);
  void take_back(std::byte* data, size_t bytes) override;
  std::byte* at(uint8_t block) const {
    return blocks_.data() + (block - 1) * kBlockBytes;
  }

  Mapping blocks_;
  std::shared_ptr<SharedMemory> memory_;
  LoanState* state_;
  size_t num_kept_ = 0;
  std::function<void()> tell_;
};

}  // namespace aikido::transport

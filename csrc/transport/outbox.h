// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The blocks of a process, in which other processes of the host find large payloads:
// loans.h says why. One outbox for all groups; all on the progress thread, but fd().

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "transport/loans.h"
#include "transport/mapping.h"
#include "transport/shared_memory.h"

namespace aikido::transport {

// Names bytes that several members get: the same name is the same bytes, and one block.
struct Content {
  std::weak_ptr<const void> owner;  // of which it is; nothing is found once it is gone
  uint32_t part = 0;
  uint64_t offset = 0;
  size_t bytes = 0;
  size_t num_readers = 1;
};

class Outbox;

// The blocks that one reader has.
class Lender {
 public:
  // Whether the reader takes payloads of this size from blocks.
  bool takes(size_t bytes) const;
  // It may have one more.
  bool has_credit();
  // Puts the bytes where the reader finds them, unless they are there already. Returns
  // the number for the frame; 0: no block is free. Requires: takes() and has_credit().
  uint8_t lend(const std::byte* data, const Content& content);
  // It has few enough that waiting for more is over.
  bool has_room();

 private:
  friend class Outbox;
  Lender(Outbox* outbox, std::shared_ptr<SharedMemory> memory, int pid)
      : outbox_(outbox),
        memory_(std::move(memory)),
        state_(memory_->lent()),
        pid_(pid) {}
  void collect();
  bool is_settled();

  Outbox* outbox_;
  std::shared_ptr<SharedMemory> memory_;
  LoanState* state_;
  int pid_;
  uint64_t seen_ = 0;            // of `returned`
  std::vector<uint8_t> blocks_;  // their numbers, from 0
};

class Outbox {
 public:
  // kRetryLater says why the kernel gives no memory for it.
  static Result<std::unique_ptr<Outbox>> make();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // For the other processes. Any thread.
  int fd() const { return fd_.get(); }

  // To the process `pid` (0: not known), with which `memory` is shared. What it has
  // once the link to it is gone comes back when it says so, or is dead.
  std::shared_ptr<Lender> lend_to(std::shared_ptr<SharedMemory> memory, int pid);
  // Takes what readers have given back, and forgets those that have nothing and no
  // link.
  void collect();

 private:
  friend class Lender;
  struct Block {
    size_t num_readers = 0;
    size_t num_to_come = 0;  // that are to get the content, too
    Content content;
    // It may be sent to others still.
    bool is_of_use() const { return num_to_come > 0 && !content.owner.expired(); }
  };
  Outbox(Fd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  std::optional<uint8_t> find(const Content& content) const;
  std::optional<uint8_t> find_free();
  std::byte* at(uint8_t block) const { return mapping_.data() + block * kBlockBytes; }

  Fd fd_;
  Mapping mapping_;
  std::array<Block, kNumBlocks> blocks_;
  size_t oldest_ = 0;  // where the search for a block begins whose content may go
  std::vector<std::shared_ptr<Lender>> lenders_;
};

}  // namespace aikido::transport

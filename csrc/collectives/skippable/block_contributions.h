// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Contributions of this member to the blocks of a reduce_scatter that other members
// own: their messages, the owners that went on without them, and copies of the bytes
// that are unsent at the end of the call (Note [slow receivers] in
// partial_reduce_scatter.h). Progress thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer_pool.h"
#include "base/rank_set.h"
#include "collectives/skippable/result_header.h"
#include "collectives/skippable/skippable_part.h"

namespace aikido::collectives {

class BlockContributions final : public SkippablePart {
 public:
  explicit BlockContributions(SkippableOperation& operation)
      : SkippablePart(operation), given_(static_cast<size_t>(host_->size())) {}

  // Sends the blocks of `owners` that were not sent yet, except to owners that went on
  // without this member. Requires: the local member has called and takes part.
  void give_to(const RankSet& owners);
  // The contribution is not needed by `owner` any more.
  void withdraw(Rank owner);
  // The caller's memory is about to belong to the caller again: copies the bytes for
  // `owner` that are unsent. Bytes that have left are not sent again.
  void disown(Rank owner);
  // Reads the header of a block without this member. kProtocol if it is invalid.
  Status read_header(Rank owner, std::span<const std::byte> bytes);
  // The message with this token has left.
  void on_left(uint32_t token);

  size_t num_under_way() const;
  size_t bytes_under_way() const;
  bool is_under_way(Rank owner) const { return to(owner).is_under_way; }
  // Header of the block that lacks this member; its mask is empty if there is none.
  const ResultHeader& without_us(Rank owner) const { return to(owner).without_us; }
  // Some block lacks this member.
  bool was_skipped() const;
  // Bytes of withdrawn contributions that were not sent.
  uint64_t cancelled_bytes() const { return cancelled_bytes_; }

 private:
  struct Contribution {
    transport::MessageId id = 0;
    bool is_posted = false;
    bool is_under_way = false;  // and not withdrawn
    uint32_t token = 0;         // of the message under way
    Buffer copy;                // of the bytes that were unsent at the end of the call
    ResultHeader without_us;  // its owner's header; the mask is empty until it arrives
  };
  void give(Rank owner, const std::byte* data, size_t from_byte);
  Contribution& to(Rank owner) { return given_[static_cast<size_t>(owner.value)]; }
  const Contribution& to(Rank owner) const {
    return given_[static_cast<size_t>(owner.value)];
  }
  const OutBlock& block(Rank owner) const {
    return local_.out_blocks[static_cast<size_t>(owner.value)];
  }

  std::vector<Contribution> given_;  // by rank
  uint32_t num_messages_ = 0;
  uint64_t cancelled_bytes_ = 0;
};

}  // namespace aikido::collectives

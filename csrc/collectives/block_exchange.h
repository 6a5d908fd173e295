// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Blocks that go straight from one member's memory to another's: broadcast and scatter
// (the root has a block for everybody), gather (everybody has one for the root),
// allgather and alltoall (everybody has one for everybody). Blocks up to the eager size
// are sent at once and wait at the receiver; larger ones wait at the sender until the
// receiver has called, so they are never copied aside. A receiver that cannot know the
// size (sparse allreduce) gives the memory when the block comes.

#include <map>
#include <vector>

#include "collectives/operation.h"

namespace aikido::collectives {

class BlockExchange final : public Operation {
 public:
  BlockExchange(OperationHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> rest) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  std::vector<Rank> missing() const override;
  Rank first_awaited() const override;
  void probe() override;

 private:
  struct Incoming {
    bool is_expected = false;  // known once called
    bool is_any_size = false;  // up to max_bytes, in memory of local_.allocate
    size_t max_bytes = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;  // known once called or begun
    size_t got = 0;
    bool has_begun = false;
    bool has_come = false;  // at least one frame, whole
    Buffer early;           // came before the call
    bool is_whole() const { return has_come && got == bytes; }
  };
  // A kReady that came before the local call.
  struct Ready {
    bool has_come = false;
    std::optional<uint64_t> wanted;  // bytes
  };

  Status on_start() override;
  void on_message_sent(uint32_t token) override;
  size_t num_receivers(transport::FrameKind kind) const override {
    const bool is_block = kind == transport::FrameKind::kData;
    return is_block && all_get_the_same_ ? local_.out_blocks.size() : 1;
  }
  Status expect(const InBlock& block);
  void take_early(Incoming& in);
  void post_ready(const Incoming& in, Rank from);
  void send_block(const OutBlock& block);
  Status check_ready(Rank from, std::optional<uint64_t> wanted) const;
  void finish_if_done();

  std::vector<Incoming> incoming_;  // by rank
  std::vector<Ready> ready_;        // by rank: can take a large block
  std::vector<bool> block_posted_;  // by rank
  std::vector<bool> block_sent_;    // by rank
  bool all_get_the_same_ = false;
  size_t incoming_left_ = 0;
  size_t outgoing_left_ = 0;
};

}  // namespace aikido::collectives

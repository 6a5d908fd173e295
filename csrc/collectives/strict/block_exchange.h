// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Exchange of blocks, straight from one member's memory to another's: broadcast and
// scatter (the root has a block for everybody), gather (everybody has a block for the
// root), allgather and alltoall (everybody has a block for everybody). The first bytes
// of each block, up to the eager size, are sent at once and wait at the receiver. The
// rest waits at the sender until the receiver has called and asked for it, so it is
// never copied aside. A receiver that cannot know the size (sparse allreduce) provides
// the memory when the block arrives.
//
// Note [the beginning of a block]
// If nothing were sent before the request, the first member that asks would get all
// bytes that the others can send, which exceeds the rate of its link. Requests to that
// member would wait behind these bytes. Rule: the beginnings of blocks are sent
// unasked. So links are busy from the start while the requests travel. A peer that
// reads our memory has no such link: it gets a large block in one piece.

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
    bool is_expected = false;  // known after the call
    bool is_any_size = false;  // up to max_bytes, in memory of local_.allocate
    size_t max_bytes = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;  // known after the call or the first frame
    size_t got = 0;
    bool has_begun = false;
    bool has_come = false;  // at least one frame, completely
    Buffer early;           // bytes that came before the call
    bool is_whole() const { return has_come && got == bytes; }
  };
  // A kReady that came before the local call.
  struct Ready {
    bool has_come = false;
    std::optional<uint64_t> wanted;  // bytes
  };
  struct Outgoing {
    size_t posted = 0;  // bytes
    bool is_posted = false;
    bool is_sent = false;
  };

  Status on_start() override;
  void on_message_sent(uint32_t token) override;
  size_t num_receivers(transport::FrameKind kind) const override {
    const bool is_block = kind == transport::FrameKind::kData;
    return is_block && all_get_the_same_ ? local_.out_blocks.size() : 1;
  }
  void begin_elsewhere();
  Status expect(const InBlock& block);
  void take_early(Incoming& in);
  void post_ready(const Incoming& in, Rank from);
  size_t unasked(const OutBlock& block);
  void send_up_to(size_t end, const OutBlock& block);
  Status check_ready(Rank from, std::optional<uint64_t> wanted) const;
  void finish_if_done();

  RecycledVector<Incoming> incoming_;  // by rank
  RecycledVector<Ready> ready_;        // by rank: requests for large blocks
  RecycledVector<Outgoing> outgoing_;  // by rank
  bool all_get_the_same_ = false;
  size_t incoming_left_ = 0;
  size_t outgoing_left_ = 0;
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Blocks that go straight from one member's memory to another's: broadcast (the root
// has a block for everybody) and allgather (everybody has one for everybody). Blocks up
// to the eager size are sent at once and wait at the receiver; larger ones wait at the
// sender until the receiver has called, so they are never copied aside.

#include <map>
#include <vector>

#include "collectives/operation.h"

namespace aikido::collectives {

class BlockExchange final : public Operation {
 public:
  BlockExchange(OperationHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> extension) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  std::vector<Rank> missing() const override;

 private:
  struct Incoming {
    bool is_expected = false;  // known once called
    std::byte* data = nullptr;
    size_t bytes = 0;
    size_t got = 0;
    bool has_come = false;
    Buffer early;  // came before the call
  };

  void on_start() override;
  void on_message_sent(uint32_t token) override;
  void send_block(const OutBlock& block);
  void finish_if_done();

  std::vector<Incoming> incoming_;  // by rank
  std::vector<bool> ready_;         // by rank: can take a large block
  std::vector<bool> block_posted_;  // by rank
  std::vector<bool> block_sent_;    // by rank
  size_t incoming_left_ = 0;
  size_t outgoing_left_ = 0;
};

}  // namespace aikido::collectives

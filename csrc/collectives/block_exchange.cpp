// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/block_exchange.h"

#include <cstring>
#include <limits>

namespace aikido::collectives {

using transport::FrameKind;

namespace {
// Token of a message that is no block; a block has the rank that it goes to.
constexpr uint32_t kReadyToken = std::numeric_limits<uint32_t>::max();
}  // namespace

BlockExchange::BlockExchange(OperationHost* host, Seq seq, Call call, Rank first_caller)
    : Operation(host, seq, std::move(call), first_caller),
      incoming_(static_cast<size_t>(host->size())),
      ready_(static_cast<size_t>(host->size())),
      block_posted_(static_cast<size_t>(host->size())),
      block_sent_(static_cast<size_t>(host->size())) {}

void BlockExchange::on_start() {
  const size_t eager = host_->settings().eager_bytes;
  for (const InBlock& block : local_.in_blocks) {
    Incoming& in = incoming_[static_cast<size_t>(block.from.value)];
    in.is_expected = true;
    in.data = block.data;
    in.bytes = block.bytes;
    const bool is_complete = in.has_come && in.got == in.bytes;
    if (!is_complete) ++incoming_left_;
    // The rest of a block that is half here follows it into the early buffer.
    if (is_complete && in.early) {
      std::memcpy(in.data, in.early.data(), in.got);
      in.early.reset();
    }
    if (block.bytes > eager)
      post(block.from, FrameKind::kReady, 0, nullptr, 0, 0, 0, true, kReadyToken);
  }
  outgoing_left_ = local_.out_blocks.size();
  for (const OutBlock& block : local_.out_blocks) {
    if (block.bytes <= eager || ready_[static_cast<size_t>(block.to.value)]) {
      send_block(block);
    }
  }
  finish_if_done();
}

void BlockExchange::send_block(const OutBlock& block) {
  const auto to = static_cast<size_t>(block.to.value);
  if (block_posted_[to]) return;
  block_posted_[to] = true;
  --outgoing_left_;
  post(block.to, FrameKind::kData, 0, block.data, block.bytes, 0, block.bytes, true,
       static_cast<uint32_t>(block.to.value));
}

void BlockExchange::on_message_sent(uint32_t token) {
  if (token != kReadyToken) block_sent_[token] = true;
  finish_if_done();
}

Result<std::byte*> BlockExchange::place(Rank from, const transport::FrameHeader& header,
                                        std::span<const std::byte>) {
  if (header.kind == FrameKind::kReady) return nullptr;
  Incoming& in = incoming_[static_cast<size_t>(from.value)];
  if (header.kind != FrameKind::kData || header.offset != in.got) {
    return misfit(from, header, in.bytes);
  }
  if (in.early) return in.early.data() + header.offset;
  if (is_started()) {
    if (!in.is_expected || header.total_bytes != in.bytes) {
      return misfit(from, header, in.bytes);
    }
    return in.data + header.offset;
  }
  // Not called yet here: only an eager block may come.
  if (header.total_bytes > host_->settings().eager_bytes) {
    return misfit(from, header, host_->settings().eager_bytes);
  }
  in.early = host_->pool().take(header.total_bytes);
  in.bytes = header.total_bytes;
  return in.early.data();
}

void BlockExchange::arrived(Rank from, const transport::FrameHeader& header) {
  if (header.kind == FrameKind::kReady) {
    ready_[static_cast<size_t>(from.value)] = true;
    if (!is_started()) return;
    for (const OutBlock& block : local_.out_blocks) {
      if (block.to == from) send_block(block);
    }
    return;
  }
  Incoming& in = incoming_[static_cast<size_t>(from.value)];
  in.got += header.payload_bytes;
  in.has_come = true;
  if (!is_started() || in.got < in.bytes) return;
  if (in.early) {
    // The call came while the block was on its way into the early buffer.
    std::memcpy(in.data, in.early.data(), in.got);
    in.early.reset();
  }
  --incoming_left_;
  finish_if_done();
}

void BlockExchange::finish_if_done() {
  if (!is_started() || is_over()) return;
  if (incoming_left_ > 0 || outgoing_left_ > 0 || pending_sends_ > 0) return;
  set_over();
  succeed({});
}

std::vector<Rank> BlockExchange::missing() const {
  std::vector<Rank> ranks;
  for (const InBlock& block : local_.in_blocks) {
    const Incoming& in = incoming_[static_cast<size_t>(block.from.value)];
    if (!in.has_come || in.got < in.bytes) ranks.push_back(block.from);
  }
  for (const OutBlock& block : local_.out_blocks) {
    if (!block_sent_[static_cast<size_t>(block.to.value)]) ranks.push_back(block.to);
  }
  return ranks;
}

}  // namespace aikido::collectives

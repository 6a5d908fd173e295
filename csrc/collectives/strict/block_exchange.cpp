// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/block_exchange.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace aikido::collectives {

using transport::FrameKind;

namespace {
// Token of a message that does not end a block. Otherwise the token is the receiver's
// rank.
constexpr uint32_t kNoToken = std::numeric_limits<uint32_t>::max();
}  // namespace

BlockExchange::BlockExchange(OperationHost* host, Seq seq, Call call, Rank first_caller)
    : Operation(host, seq, std::move(call), first_caller),
      incoming_(static_cast<size_t>(host->size()), host->recycler()),
      ready_(static_cast<size_t>(host->size()), host->recycler()),
      outgoing_(static_cast<size_t>(host->size()), host->recycler()) {}

Status BlockExchange::on_start() {
  // Blocks may have arrived before the call. A block that nobody expects here means
  // that the calls differ.
  for (const InBlock& block : local_.in_blocks) AIKIDO_TRY(expect(block));
  for (int32_t r = 0; r < host_->size(); ++r) {
    const Incoming& in = incoming_[static_cast<size_t>(r)];
    if (in.has_begun && !in.is_expected) return misfit(Rank(r), in.bytes, 0);
  }
  for (const OutBlock& block : local_.out_blocks) {
    const Ready& ready = ready_[static_cast<size_t>(block.to.value)];
    if (ready.has_come) AIKIDO_TRY(check_ready(block.to, ready.wanted));
  }
  begin_elsewhere();
  const size_t eager = host_->settings().eager_bytes;
  for (const InBlock& block : local_.in_blocks) {
    const Incoming& in = incoming_[static_cast<size_t>(block.from.value)];
    if (in.is_any_size || in.bytes > eager) post_ready(in, block.from);
  }
  const auto& blocks = local_.out_blocks;
  outgoing_left_ = blocks.size();
  // True for a broadcast and an all_gather.
  all_get_the_same_ = std::all_of(blocks.begin(), blocks.end(), [&](const auto& block) {
    return block.data == blocks.front().data && block.bytes == blocks.front().bytes;
  });
  for (const OutBlock& block : local_.out_blocks) send_up_to(unasked(block), block);
  finish_if_done();
  return Status::ok();
}

// Each member sends to the next member first, and asks the previous member first. So no
// member is the first of all.
void BlockExchange::begin_elsewhere() {
  const Rank self = host_->self();
  std::ranges::sort(local_.in_blocks, {}, [self](const InBlock& block) {
    return std::pair(block.from > self, -block.from.value);
  });
  std::ranges::sort(local_.out_blocks, {}, [self](const OutBlock& block) {
    return std::pair(block.to < self, block.to);
  });
}

// Accounts for the bytes of an expected block that arrived before the call.
Status BlockExchange::expect(const InBlock& block) {
  Incoming& in = incoming_[static_cast<size_t>(block.from.value)];
  in.is_expected = true;
  in.is_any_size = block.data == nullptr && block.bytes > 0;
  in.max_bytes = block.bytes;
  const bool fits = in.is_any_size ? in.bytes <= block.bytes : in.bytes == block.bytes;
  if (in.has_begun && !fits) return misfit(block.from, in.bytes, block.bytes);
  if (!in.is_any_size) {
    in.bytes = block.bytes;
    in.data = block.data;
  } else if (in.has_begun) {
    in.data = local_.allocate(block.from, in.bytes);
  }
  if (in.is_whole()) {
    take_early(in);
  } else {
    ++incoming_left_;  // the rest of a half-received block goes where its beginning is
  }
  return Status::ok();
}

void BlockExchange::take_early(Incoming& in) {
  if (!in.early) return;
  std::memcpy(in.data, in.early.data(), in.got);
  in.early.reset();
}

void BlockExchange::post_ready(const Incoming& in, Rank from) {
  // A receiver that takes any size announces that instead of a size.
  post(from, FrameKind::kReady, in.is_any_size ? kAnySize : 0, nullptr, 0, 0,
       in.is_any_size ? 0 : in.bytes, true, kNoToken);
}

// Bytes of the block that are sent with the call. The rest waits for kReady, unless
// that has come.
size_t BlockExchange::unasked(const OutBlock& block) {
  const size_t eager = host_->settings().eager_bytes;
  if (block.bytes <= eager || ready_[static_cast<size_t>(block.to.value)].has_come)
    return block.bytes;
  // A peer that maps this process's blocks gains nothing from a part in advance.
  return host_->reads_our_memory(block.to) ? 0 : eager;
}

void BlockExchange::send_up_to(size_t end, const OutBlock& block) {
  Outgoing& out = outgoing_[static_cast<size_t>(block.to.value)];
  const bool is_end = end == block.bytes;
  if (out.is_posted || (end == out.posted && !is_end)) return;
  const size_t begin = std::exchange(out.posted, end);
  if (is_end) {
    out.is_posted = true;
    --outgoing_left_;
  }
  post(block.to, FrameKind::kData, 0, block.data + begin, end - begin, begin,
       block.bytes, true, is_end ? static_cast<uint32_t>(block.to.value) : kNoToken);
}

void BlockExchange::on_message_sent(uint32_t token) {
  if (token != kNoToken) outgoing_[token].is_sent = true;
  finish_if_done();
}

// The size that the receiver expects must be the size that it gets.
Status BlockExchange::check_ready(Rank from, std::optional<uint64_t> wanted) const {
  if (!wanted) return Status::ok();
  for (const OutBlock& block : local_.out_blocks) {
    if (block.to != from || block.bytes == *wanted) continue;
    return {Code::kInvalidArgument,
            concat(describe(call_), ", collective ", seq_.value, " of its group: rank ",
                   host_->self().value, " sends ", block.bytes, " bytes where rank ",
                   from.value, " expects ", *wanted,
                   "; use the same shape and dtype on every rank"),
            from};
  }
  return Status::ok();
}

Result<std::byte*> BlockExchange::place(Rank from, const transport::FrameHeader& header,
                                        std::span<const std::byte>) {
  if (header.kind == FrameKind::kReady) {
    Ready ready{true, {}};
    if (header.shard != kAnySize) ready.wanted = header.total_bytes;
    if (is_started()) AIKIDO_TRY(check_ready(from, ready.wanted));
    ready_[static_cast<size_t>(from.value)] = ready;
    return nullptr;
  }
  Incoming& in = incoming_[static_cast<size_t>(from.value)];
  if (header.kind != FrameKind::kData || header.offset != in.got || in.is_whole() ||
      (in.has_begun && header.total_bytes != in.bytes)) {
    return misfit(from, header.total_bytes, in.bytes);
  }
  if (is_started()) {
    if (!in.is_expected) return misfit(from, header.total_bytes, 0);
    if (in.is_any_size && !in.has_begun) {
      if (header.total_bytes > in.max_bytes)
        return misfit(from, header.total_bytes, in.max_bytes);
      in.bytes = header.total_bytes;
      in.data = local_.allocate(from, in.bytes);
    }
    if (header.total_bytes != in.bytes)
      return misfit(from, header.total_bytes, in.bytes);
    in.has_begun = true;
    take_early(in);
    return in.data + header.offset;
  }
  // Not called here yet, so the sender has not been asked for more than the eager
  // bytes.
  const size_t eager = host_->settings().eager_bytes;
  if (header.offset + header.payload_bytes > eager)
    return misfit(from, header.total_bytes, eager);
  if (!in.has_begun) {
    in.early = host_->pool().take(std::min<size_t>(header.total_bytes, eager));
    in.bytes = header.total_bytes;
    in.has_begun = true;
  }
  return in.early.data() + header.offset;
}

void BlockExchange::arrived(Rank from, const transport::FrameHeader& header) {
  if (header.kind == FrameKind::kReady) {
    if (!is_started()) return;
    for (const OutBlock& block : local_.out_blocks) {
      if (block.to == from) send_up_to(block.bytes, block);
    }
    return;
  }
  Incoming& in = incoming_[static_cast<size_t>(from.value)];
  in.got += header.payload_bytes;
  in.has_come = true;
  if (!is_started() || !in.is_whole()) return;
  // The call was made while the block was arriving in the early buffer.
  take_early(in);
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
    if (!incoming_[static_cast<size_t>(block.from.value)].is_whole())
      ranks.push_back(block.from);
  }
  for (const OutBlock& block : local_.out_blocks) {
    // A block counts as sent when the link has released its memory.
    if (!outgoing_[static_cast<size_t>(block.to.value)].is_sent)
      ranks.push_back(block.to);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// kNoRank if a large block of this member may wait for a kReady of any member.
Rank BlockExchange::first_awaited() const {
  if (outgoing_left_ > 0) return kNoRank;
  for (const InBlock& block : local_.in_blocks)
    if (!incoming_[static_cast<size_t>(block.from.value)].is_whole()) return block.from;
  return kNoRank;
}

// Sends the expected size along, because the blocks of an alltoall are not part of the
// call.
void BlockExchange::probe() {
  for (const Rank rank : missing())
    post_ready(incoming_[static_cast<size_t>(rank.value)], rank);
}

}  // namespace aikido::collectives

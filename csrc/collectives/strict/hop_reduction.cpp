// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/hop_reduction.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace aikido::collectives {

using transport::FrameKind;

HopReduction::HopReduction(OperationHost* host, Seq seq, Call call, Rank first_caller)
    : Operation(host, seq, std::move(call), first_caller),
      plan_(call_.algorithm, host->size(), host->self(), host->settings().hosts),
      shards_(call_.count, size_of(call_.dtype), plan_.num_shards(), 1),
      reduce_(kernels::find_reduce(call_.op, call_.dtype)),
      scale_(call_.op == ReduceOp::kAvg ? 1.0 / host->size() : 1.0),
      incoming_(host->recycler()) {
  incoming_.reserve(static_cast<size_t>(plan_.num_hops()));
  for (int32_t k = 0; k < plan_.num_hops(); ++k)
    incoming_.emplace_back(host->recycler());
}

HopReduction::Range HopReduction::range_of(const Transfer& transfer) const {
  if (transfer.peer == kNoRank) return {};
  const size_t begin = shards_.first_byte(transfer.shards.first);
  return {begin, shards_.first_byte(transfer.shards.end) - begin};
}

// Folded data is cut between elements only.
size_t HopReduction::chunk_of(FrameKind kind) const {
  return kind == FrameKind::kContrib ? whole_elements() : 0;
}

Status HopReduction::on_start() {
  if (local_.output != local_.input)
    std::memcpy(local_.output, local_.input, call_.bytes());
  go_to(0);
  go_on();
  return Status::ok();
}

// Sends this rank's data of the hop, and folds the frames that arrived early. A tensor
// may have fewer elements than shards; empty transfers are neither sent nor awaited.
void HopReduction::go_to(int32_t hop) {
  hop_ = hop;
  if (hop == plan_.num_hops()) return;
  const Transfer send = plan_.hop(hop).send;
  const Range range = range_of(send);
  if (range.bytes > 0) {
    post(send.peer, folds(hop) ? FrameKind::kContrib : FrameKind::kResult, hop,
         local_.output + range.begin, range.bytes, 0, range.bytes, true);
  }
  const auto early = std::move(incoming(hop).early);
  for (const Buffer& frame : early) fold(hop, frame);
}

bool HopReduction::is_through(int32_t hop) const {
  const Incoming& in = incoming_[static_cast<size_t>(hop)];
  const size_t done = folds(hop) ? in.folded : in.bytes;
  return done == range_of(plan_.hop(hop).receive).bytes;
}

void HopReduction::go_on() {
  while (hop_ < plan_.num_hops() && is_through(hop_)) go_to(hop_ + 1);
  finish_if_done();
}

void HopReduction::fold(int32_t hop, const Buffer& frame) {
  Incoming& in = incoming(hop);
  std::byte* out = local_.output + range_of(plan_.hop(hop).receive).begin + in.folded;
  const void* const sources[] = {out, frame.data()};
  // A mean is scaled once, with the last fold.
  const bool is_last = hop + 1 == plan_.num_folds();
  reduce_(out, sources, 2, frame.size() / size_of(call_.dtype), is_last ? scale_ : 1.0);
  in.folded += frame.size();
}

Result<std::byte*> HopReduction::place(Rank from, const transport::FrameHeader& header,
                                       std::span<const std::byte>) {
  // It only asks if this rank has called.
  if (header.kind == FrameKind::kReady) return nullptr;
  const auto hop = static_cast<int32_t>(header.shard);
  if (hop >= plan_.num_hops()) return misfit(from, header.total_bytes, 0);
  const Transfer receive = plan_.hop(hop).receive;
  const FrameKind kind = folds(hop) ? FrameKind::kContrib : FrameKind::kResult;
  // A frame for a copy replaces output bytes, so it cannot arrive before the call.
  const bool can_come = folds(hop) || is_started();
  if (receive.peer != from || header.kind != kind || !can_come)
    return misfit(from, header.total_bytes, 0);
  const Range range = range_of(receive);
  Incoming& in = incoming(hop);
  const bool is_whole = header.payload_bytes % size_of(call_.dtype) == 0;
  if (header.total_bytes != range.bytes || header.offset != in.bytes ||
      (folds(hop) && !is_whole)) {
    return misfit(from, header.total_bytes, range.bytes);
  }
  if (header.payload_bytes == 0) return nullptr;
  if (!folds(hop)) return local_.output + range.begin + header.offset;
  in.begun = host_->pool().take(header.payload_bytes);
  return in.begun.data();
}

void HopReduction::arrived(Rank, const transport::FrameHeader& header) {
  if (header.kind == FrameKind::kReady || header.payload_bytes == 0) return;
  const auto hop = static_cast<int32_t>(header.shard);
  Incoming& in = incoming(hop);
  in.bytes += header.payload_bytes;
  if (folds(hop)) {
    Buffer frame = std::move(in.begun);
    // The output still takes part in an earlier hop, so the frame waits.
    if (hop != hop_) return in.early.push_back(std::move(frame));
    fold(hop, frame);
  }
  if (hop == hop_) go_on();
}

void HopReduction::finish_if_done() {
  if (is_over() || hop_ < plan_.num_hops() || pending_sends_ > 0) return;
  set_over();
  succeed({});
}

std::vector<Rank> HopReduction::missing() const {
  std::vector<Rank> ranks;
  for (int32_t k = std::max(hop_, 0); k < plan_.num_hops(); ++k) {
    const Transfer receive = plan_.hop(k).receive;
    const bool is_here =
        incoming_[static_cast<size_t>(k)].bytes == range_of(receive).bytes;
    if (!is_here && std::find(ranks.begin(), ranks.end(), receive.peer) == ranks.end())
      ranks.push_back(receive.peer);
  }
  return ranks;
}

// A member that waits here for one rank waits through that rank for all.
std::vector<Rank> HopReduction::awaited() const {
  return missing().empty() ? std::vector<Rank>() : others();
}

}  // namespace aikido::collectives

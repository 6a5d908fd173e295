// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/block_contributions.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/weights.h"

namespace aikido::collectives {

using transport::FrameKind;

void BlockContributions::give_to(const RankSet& owners) {
  const int32_t n = host_->size();
  // Each member begins with another owner, so that no owner is the first of all.
  for (int32_t step = 1; step < n; ++step) {
    const Rank rank((host_->self().value + step) % n);
    Contribution& mine = to(rank);
    const bool is_late = mine.without_us.mask.count() > 0;
    if (is_late || mine.is_posted || !owners.contains(rank)) continue;
    give(rank, block(rank).data, 0);
  }
}

// `data`: this member's block for `rank`, from byte `from_byte` on.
void BlockContributions::give(Rank rank, const std::byte* data, size_t from_byte) {
  Contribution& mine = to(rank);
  const size_t bytes = block(rank).bytes;
  mine.is_posted = mine.is_under_way = true;
  mine.token = ++num_messages_ * static_cast<uint32_t>(host_->size()) +
               static_cast<uint32_t>(rank.value);
  const auto weight = encode_weight(local_.weight);
  const std::span<const std::byte> extra =
      call_.is_weighted ? weight : std::span<const std::byte>();
  mine.id = post(rank, FrameKind::kContrib, rank.value, data, bytes - from_byte,
                 from_byte, bytes, from_byte == 0, mine.token, extra);
}

void BlockContributions::withdraw(Rank rank) {
  Contribution& mine = to(rank);
  mine.is_posted = false;
  if (!std::exchange(mine.is_under_way, false)) return;
  cancelled_bytes_ += host_->cancel(rank, mine.id);
  mine.copy = {};
}

void BlockContributions::disown(Rank rank) {
  Contribution& mine = to(rank);
  const OutBlock& out = block(rank);
  if (!mine.is_under_way || out.bytes == 0) return;
  const size_t left = view_host_->recall(rank, mine.id);
  if (left == 0) return;
  mine.copy = host_->pool().take(left);
  std::memcpy(mine.copy.data(), out.data + out.bytes - left, left);
  give(rank, mine.copy.data(), out.bytes - left);
}

void BlockContributions::on_left(uint32_t token) {
  const auto n = static_cast<uint32_t>(host_->size());
  const Rank rank(static_cast<int32_t>(token % n));
  Contribution& mine = to(rank);
  if (rank != host_->self() && token == mine.token) {
    mine.is_under_way = false;
    mine.copy = {};
  }
}

size_t BlockContributions::num_under_way() const {
  return static_cast<size_t>(
      std::count_if(given_.begin(), given_.end(),
                    [](const Contribution& mine) { return mine.is_under_way; }));
}

size_t BlockContributions::bytes_under_way() const {
  size_t bytes = 0;
  for (size_t r = 0; r < given_.size(); ++r)
    if (given_[r].is_under_way) bytes += local_.out_blocks[r].bytes;
  return bytes;
}

bool BlockContributions::was_skipped() const {
  return std::any_of(given_.begin(), given_.end(), [](const Contribution& mine) {
    return mine.without_us.mask.count() > 0;
  });
}

Status BlockContributions::read_header(Rank from, std::span<const std::byte> bytes) {
  auto header =
      decode_result_header(bytes, host_->size(), host_->size(), call_.is_weighted);
  if (!header) return header.status();
  if (header->mask.contains(host_->self())) {
    return {Code::kProtocol,
            concat("rank ", from.value, " says that rank ", host_->self().value,
                   " is not in its block, and that it is"),
            from};
  }
  to(from).without_us = std::move(*header);
  withdraw(from);
  return Status::ok();
}

}  // namespace aikido::collectives

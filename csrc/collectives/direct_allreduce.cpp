// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/direct_allreduce.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace aikido::collectives {

using transport::FrameKind;

DirectAllreduce::DirectAllreduce(OperationHost* host, Seq seq, Call call,
                                 Rank first_caller)
    : Operation(host, seq, std::move(call), first_caller),
      plan_(call_.count, size_of(call_.dtype), host->size(),
            host->settings().min_shard_bytes),
      reduce_(kernels::find_reduce(call_.op, call_.dtype)),
      scale_(call_.op == ReduceOp::kAvg ? 1.0 / host->size() : 1.0),
      own_shard_(plan_.shard_of(host->self())),
      result_bytes_(static_cast<size_t>(plan_.num_shards())),
      result_has_come_(static_cast<size_t>(plan_.num_shards())),
      results_left_(plan_.num_shards() - (own_shard_ ? 1 : 0)) {
  if (own_shard_) sources_.resize(static_cast<size_t>(host->size()));
}

void DirectAllreduce::on_start() {
  // Each member begins with another owner, so that no owner is everybody's first.
  const int32_t n = host_->size();
  for (int32_t step = 1; step < n; ++step) {
    const Rank owner((host_->self().value + step) % n);
    const auto shard = plan_.shard_of(owner);
    if (!shard) continue;
    post(owner, FrameKind::kContrib, *shard, local_.input + plan_.first_byte(*shard),
         plan_.num_bytes(*shard), 0, plan_.num_bytes(*shard), true);
  }
  fold_what_is_ready();
  finish_if_done();
}

Result<std::byte*> DirectAllreduce::place(Rank from,
                                          const transport::FrameHeader& header,
                                          std::span<const std::byte>) {
  const auto shard = static_cast<int32_t>(header.shard);
  // After the fold every contribution is in: another one is a second of somebody.
  if (header.kind == FrameKind::kContrib && own_shard_ == shard && !own_done_) {
    const size_t expected = plan_.num_bytes(shard);
    Source& source = sources_[static_cast<size_t>(from.value)];
    if (header.total_bytes != expected || header.offset != source.bytes) {
      return misfit(from, header, expected);
    }
    if (!source.staged) source.staged = host_->pool().take(expected);
    return source.staged.data() + header.offset;
  }
  // A result can only follow our contribution, so the caller's memory is known.
  if (header.kind == FrameKind::kResult && shard < plan_.num_shards() &&
      plan_.owner(shard) == from && is_started()) {
    const size_t expected = plan_.num_bytes(shard);
    if (header.total_bytes != expected ||
        header.offset != result_bytes_[static_cast<size_t>(shard)]) {
      return misfit(from, header, expected);
    }
    return local_.output + plan_.first_byte(shard) + header.offset;
  }
  return misfit(from, header, 0);
}

void DirectAllreduce::arrived(Rank from, const transport::FrameHeader& header) {
  if (header.kind == FrameKind::kContrib) {
    Source& source = sources_[static_cast<size_t>(from.value)];
    source.bytes += header.payload_bytes;
    source.has_come = true;
    fold_what_is_ready();
  } else {
    const size_t shard = header.shard;
    result_bytes_[shard] += header.payload_bytes;
    if (result_bytes_[shard] == header.total_bytes && !result_has_come_[shard]) {
      result_has_come_[shard] = true;
      --results_left_;
    }
  }
  finish_if_done();
}

// Folds as far as the bytes of all members reach, a chunk at a time so that a piece is
// still in the cache when it goes out again.
void DirectAllreduce::fold_what_is_ready() {
  if (!own_shard_ || own_done_ || !is_started()) return;
  const size_t total = plan_.num_bytes(*own_shard_);
  size_t ready = total;
  for (int32_t r = 0; r < host_->size(); ++r) {
    if (Rank(r) == host_->self()) continue;
    const Source& source = sources_[static_cast<size_t>(r)];
    if (!source.has_come) return;
    ready = std::min(ready, source.bytes);
  }
  const size_t element = size_of(call_.dtype);
  const size_t chunk = host_->settings().chunk_bytes / element * element;
  while (ready - folded_ >= chunk && ready < total) fold(folded_, folded_ + chunk);
  if (ready == total) {
    do {
      fold(folded_, std::min(total, folded_ + chunk));
    } while (folded_ < total);
    own_done_ = true;
    sources_.clear();
  }
}

void DirectAllreduce::fold(size_t begin, size_t end) {
  const size_t at = plan_.first_byte(*own_shard_) + begin;
  const auto n = static_cast<size_t>(host_->size());
  const size_t element = size_of(call_.dtype);
  if (end > begin) {
    std::array<const void*, 64> few;
    std::vector<const void*> many;
    const void** inputs = few.data();
    if (n > few.size()) {
      many.resize(n);
      inputs = many.data();
    }
    for (size_t r = 0; r < n; ++r) {
      inputs[r] = Rank(static_cast<int32_t>(r)) == host_->self()
                      ? local_.input + at
                      : sources_[r].staged.data() + begin;
    }
    reduce_(local_.output + at, inputs, n, (end - begin) / element, scale_);
  }
  folded_ = end;
  const size_t total = plan_.num_bytes(*own_shard_);
  for (int32_t step = 1; step < host_->size(); ++step) {
    post(Rank((host_->self().value + step) % host_->size()), FrameKind::kResult,
         *own_shard_, local_.output + at, end - begin, begin, total, begin == 0);
  }
}

void DirectAllreduce::finish_if_done() {
  if (!is_started() || is_over()) return;
  if (results_left_ > 0 || (own_shard_ && !own_done_) || pending_sends_ > 0) return;
  set_over();
  succeed({});
}

std::vector<Rank> DirectAllreduce::missing() const {
  std::vector<Rank> ranks;
  if (own_shard_ && !own_done_) {
    const size_t total = plan_.num_bytes(*own_shard_);
    for (int32_t r = 0; r < host_->size(); ++r) {
      const Source& source = sources_[static_cast<size_t>(r)];
      if (Rank(r) == host_->self()) continue;
      if (!source.has_come || source.bytes < total) ranks.push_back(Rank(r));
    }
  }
  if (!ranks.empty()) return ranks;
  for (int32_t s = 0; s < plan_.num_shards(); ++s) {
    if (own_shard_ != s && !result_has_come_[static_cast<size_t>(s)]) {
      ranks.push_back(plan_.owner(s));
    }
  }
  return ranks;
}

}  // namespace aikido::collectives

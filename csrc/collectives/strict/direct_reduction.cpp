// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/direct_reduction.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace aikido::collectives {

using transport::FrameKind;

// In a reduce, the root owns the first shard. So a small reduce needs a single hop.
DirectReduction::DirectReduction(OperationHost* host, Seq seq, Call call,
                                 Rank first_caller)
    : Operation(host, seq, std::move(call), first_caller),
      plan_(call_.count, size_of(call_.dtype), host->size(),
            host->settings().shard_bytes_of(call_),
            is_for_root() ? call_.root : Rank(0)),
      reduce_(kernels::find_reduce(call_.op, call_.dtype)),
      scale_(call_.op == ReduceOp::kAvg ? 1.0 / host->size() : 1.0),
      own_shard_(shard_of(host->self())),
      sources_(host->recycler()),
      given_(host->recycler()),
      results_(host->recycler()) {
  if (own_shard_) {
    sources_.reserve(static_cast<size_t>(host->size()));
    for (int32_t r = 0; r < host->size(); ++r) sources_.emplace_back(host->recycler());
  }
  if (own_shard_ && !is_scatter()) own_bytes_ = plan_.num_bytes(*own_shard_);
  if (wants_results()) {
    results_.resize(static_cast<size_t>(num_shards()));
    results_left_ = num_shards() - (own_shard_ ? 1 : 0);
  }
  if (call_.is_weighted) {
    weights_ = std::make_unique<Weights>();
    weights_->by_rank.resize(static_cast<size_t>(host->size()));
  }
}

DirectReduction::~DirectReduction() {
  // The caller's object may outlive this operation and must not call it any more.
  if (local_.parts) local_.parts->on_more(nullptr);
}

DirectReduction::Piece DirectReduction::piece(int32_t shard) const {
  if (is_scatter()) {
    const OutBlock& block = local_.out_blocks[static_cast<size_t>(shard)];
    return {block.data, block.bytes};
  }
  return {local_.input + plan_.first_byte(shard), plan_.num_bytes(shard)};
}

Status DirectReduction::on_start() {
  const int32_t n = host_->size();
  if (is_scatter()) {
    own_bytes_ = piece(host_->self().value).bytes;
    // Contributions that arrived before the call have told their size.
    for (int32_t r = 0; r < n; ++r) {
      const FoldInput& source = sources_[static_cast<size_t>(r)];
      if (source.is_begun && source.total != *own_bytes_)
        return misfit(Rank(r), source.total, *own_bytes_);
    }
  }
  if (is_for_all()) lead_ = least_lead();
  if (lead_ > 0 || local_.parts) given_.resize(static_cast<size_t>(n));
  num_held_ = results_left_;
  started_at_ = host_->clock().now();
  if (local_.parts) {
    local_.parts->on_more([this] {
      // on_more() may end the operation, and with it the last reference.
      const auto stays = shared_from_this();
      if (!is_over()) on_more();
    });
  }
  contribute();
  fold_what_is_ready();
  finish_if_done();
  return Status::ok();
}

// Number of available bytes of a shard of this member's own input of `bytes` bytes.
size_t DirectReduction::own_here(size_t bytes) const {
  return local_.parts ? std::min(bytes, local_.parts->ready()) : bytes;
}

// Smallest lead in bytes for each owner. 0: no lead, because no shard is longer.
size_t DirectReduction::least_lead() const {
  const size_t chunk = whole_elements();
  const auto others = static_cast<size_t>(std::max(host_->size() - 1, 1));
  const size_t each = host_->settings().lead_bytes / others / chunk;
  const size_t lead = std::max<size_t>(each, 2) * chunk;
  return host_->settings().lead_bytes > 0 && plan_.num_bytes(0) > lead ? lead : 0;
}

// Sends all bytes that may be sent and are not sent yet. Each member begins with
// another owner, so that no owner is the first of all.
void DirectReduction::contribute() {
  const int32_t n = host_->size();
  for (int32_t step = 1; step < n; ++step) {
    const Rank to((host_->self().value + step) % n);
    if (const auto shard = shard_of(to)) contribute_to(to, *shard);
  }
}

void DirectReduction::contribute_to(Rank owner, int32_t shard) {
  const Piece mine = piece(shard);
  const auto weight = encode_weight(local_.weight);
  const auto give = [&](size_t begin, size_t end, bool is_first) {
    post(owner, FrameKind::kContrib, shard, mine.data + begin, end - begin, begin,
         mine.bytes, is_first, 0,
         call_.is_weighted ? weight : std::span<const std::byte>());
  };
  if (given_.empty()) return give(0, mine.bytes, true);
  Given& given = given_[static_cast<size_t>(owner.value)];
  const size_t begin = given.bytes.value_or(0);
  size_t end = own_here(mine.bytes);
  if (lead_ > 0) end = std::min(end, most_given(owner, shard));
  if (given.bytes && end <= begin) return;
  give(begin, end, !given.bytes);
  if (end == mine.bytes) {
    --num_held_;
    // A shard that fits into the window does not show if the window is too large.
    if (!given.bytes && lead_ > 0) host_->learnt(owner).send_window.on_all_went();
  }
  given.bytes = end;
}

// Offset up to which this member may send, by the lead of the owner. Whole elements.
size_t DirectReduction::most_given(Rank owner, int32_t shard) const {
  const size_t back = results_[static_cast<size_t>(shard)].bytes;
  const size_t most = back + lead_ * host_->learnt(owner).send_window.times();
  return most - most % whole_elements();
}

// Number of bytes, of a shard of `bytes` bytes, that have been sent to the owner.
size_t DirectReduction::given_to(Rank owner, size_t bytes) const {
  if (given_.empty()) return bytes;
  return given_[static_cast<size_t>(owner.value)].bytes.value_or(0);
}

// More of the result of this owner's shard has arrived. The time of bytes that were
// sent before the first result byte is not measured, because a member may have been
// late.
void DirectReduction::on_back(Rank owner, int32_t shard) {
  const TimePoint now = host_->clock().now();
  host_->learnt(owner).gave_back_at = now;
  const size_t back = results_[static_cast<size_t>(shard)].bytes;
  Given& given = given_[static_cast<size_t>(owner.value)];
  if (given.timed && back >= given.timed->bytes) {
    const auto ahead =
        static_cast<double>(given.timed->ahead) / static_cast<double>(lead_);
    host_->learnt(owner).send_window.on_back(ahead, now - given.timed->at, now);
    given.timed.reset();
  }
  const size_t before = *given.bytes;
  contribute_to(owner, shard);
  if (!given.timed && *given.bytes > before)
    given.timed = {*given.bytes, *given.bytes - back, now};
}

std::optional<TimePoint> DirectReduction::next_look() const {
  // Only a call that holds bytes back has to look at the time.
  if (!is_held_back() || is_over()) return std::nullopt;
  TimePoint last = started_at_;
  for (int32_t r = 0; r < host_->size(); ++r)
    last = std::max(last, host_->learnt(Rank(r)).gave_back_at);
  return last + kStill;
}

void DirectReduction::on_time(TimePoint now) {
  const auto due = next_look();
  if (!due || now < *due) return;
  for (const Rank r : others()) {
    const auto shard = shard_of(r);
    const size_t all = shard ? plan_.num_bytes(*shard) : 0;
    if (shard && given_to(r, all) < all) host_->learnt(r).send_window.on_still();
  }
  lead_ = 0;
  contribute();
}

void DirectReduction::on_more() {
  if (const Status& failure = local_.parts->failure(); failure.has_failed())
    return host_->fail_everywhere(seq_, failure);
  contribute();
  fold_what_is_ready();
  finish_if_done();
  if (is_over()) host_->on_over(seq_);
}

Result<std::byte*> DirectReduction::place(Rank from,
                                          const transport::FrameHeader& header,
                                          std::span<const std::byte> rest) {
  // It only asks if this rank has called.
  if (header.kind == FrameKind::kReady) return nullptr;
  const auto shard = static_cast<int32_t>(header.shard);
  // After the fold all contributions are complete, so a further one would be the second
  // of its sender.
  if (header.kind == FrameKind::kContrib && own_shard_ == shard && !own_done_) {
    FoldInput& source = sources_[static_cast<size_t>(from.value)];
    const size_t expected = own_bytes_.value_or(
        source.is_begun ? source.total
                        : std::min<size_t>(header.total_bytes, call_.bytes()));
    const bool is_whole = header.payload_bytes % size_of(call_.dtype) == 0;
    if (header.total_bytes != expected || header.offset != source.bytes || !is_whole) {
      return misfit(from, header.total_bytes, expected);
    }
    if (weights_ && !source.is_begun) {
      auto weight = decode_weight(rest);
      if (!weight) return weight.status();
      weights_->by_rank[static_cast<size_t>(from.value)] = *weight;
    }
    source.is_begun = true;
    source.total = expected;
    if (header.payload_bytes == 0) return nullptr;
    // Before the call it is unknown when the frame can be folded, so it must not occupy
    // a block of its sender.
    Buffer frame = is_started() ? host_->keep_incoming(from) : Buffer();
    if (!frame) frame = host_->pool().take(header.payload_bytes);
    return source.frames.emplace_back(std::move(frame)).data();
  }
  // A result can only follow the contribution of this member, so the call is made and
  // the output is known. It never reaches beyond the bytes that were sent.
  if (header.kind == FrameKind::kResult && wants_results() && shard < num_shards() &&
      owner(shard) == from && is_started()) {
    const size_t expected = plan_.num_bytes(shard);
    if (header.total_bytes != expected ||
        header.offset != results_[static_cast<size_t>(shard)].bytes ||
        header.offset + header.payload_bytes > given_to(from, expected)) {
      return misfit(from, header.total_bytes, expected);
    }
    if (weights_ && header.offset == 0) {
      auto total = decode_total_weight(rest);
      if (!total) return total.status();
      weights_->total = *total;
    }
    return local_.output + plan_.first_byte(shard) + header.offset;
  }
  return misfit(from, header.total_bytes, 0);
}

void DirectReduction::arrived(Rank from, const transport::FrameHeader& header) {
  if (header.kind == FrameKind::kContrib) {
    FoldInput& source = sources_[static_cast<size_t>(from.value)];
    source.bytes += header.payload_bytes;
    source.has_come = true;
    fold_what_is_ready();
  } else if (header.kind == FrameKind::kResult) {
    Shard& result = results_[header.shard];
    result.bytes += header.payload_bytes;
    if (local_.parts) {
      const size_t begin = plan_.first_byte(header.shard) + header.offset;
      local_.parts->tell_result(begin, begin + header.payload_bytes);
    }
    if (result.bytes == header.total_bytes && !result.has_come) {
      result.has_come = true;
      --results_left_;
    }
    if (lead_ > 0) on_back(from, header.shard);
  }
  finish_if_done();
}

size_t DirectReduction::chunk_of(FrameKind kind) const {
  return kind == FrameKind::kContrib ? whole_elements() : 0;
}

// Folds as far as the bytes of all members reach, one frame at a time. So a piece is
// still in the cache when it is sent.
void DirectReduction::fold_what_is_ready() {
  if (!own_shard_ || own_done_ || !is_started()) return;
  for (int32_t r = 0; r < host_->size(); ++r)
    if (Rank(r) != host_->self() && !sources_[static_cast<size_t>(r)].has_come) return;
  if (weights_ && !weights_->mean) set_mean();
  const size_t total = *own_bytes_;
  do {
    const size_t n = ready();
    if (n == 0 && total > 0) return;
    fold(folded_, folded_ + n);
    drop_folded(n);
  } while (folded_ < total);
  own_done_ = true;
  sources_.clear();
}

// Requires: the first frames of all members have arrived.
void DirectReduction::set_mean() {
  weights_->by_rank[static_cast<size_t>(host_->self().value)] = local_.weight;
  weights_->mean.emplace(weights_->by_rank);
  weights_->total = weights_->mean->total();
}

// Number of bytes that can be folded next, up to the end of the shortest first frame.
size_t DirectReduction::ready() const {
  size_t ready = std::min(own_here(*own_bytes_) - folded_, whole_elements());
  for (int32_t r = 0; r < host_->size(); ++r) {
    if (Rank(r) == host_->self()) continue;
    const FoldInput& source = sources_[static_cast<size_t>(r)];
    const size_t here = source.bytes - folded_;
    if (here == 0) return 0;
    ready = std::min({ready, here, source.frames.front().size() - source.used});
  }
  return ready;
}

void DirectReduction::drop_folded(size_t bytes) {
  for (FoldInput& source : sources_) {
    source.used += bytes;
    if (source.frames.empty() || source.used < source.frames.front().size()) continue;
    source.frames.pop_front();
    source.used = 0;
  }
}

void DirectReduction::fold(size_t begin, size_t end) {
  const Piece own = piece(*own_shard_);
  std::byte* out = nullptr;
  if (is_scatter()) {
    out = local_.output + begin;
  } else if (wants_results()) {
    out = local_.output + plan_.first_byte(*own_shard_) + begin;
  } else {
    // The caller of a reduce keeps its input unchanged.
    if (!scratch_) scratch_ = host_->pool().take(std::max<size_t>(1, *own_bytes_));
    out = scratch_.data() + begin;
  }
  if (end > begin) {
    const auto n = static_cast<size_t>(host_->size());
    std::array<const void*, 64> few;
    std::vector<const void*> many;
    const void** inputs = few.data();
    if (n > few.size()) {
      // The stack array spares an allocation for common sizes.
      many.resize(n);
      inputs = many.data();
    }
    for (size_t r = 0; r < n; ++r) {
      const bool is_own = Rank(static_cast<int32_t>(r)) == host_->self();
      inputs[r] = is_own ? own.data + begin
                         : sources_[r].frames.front().data() + sources_[r].used;
    }
    const size_t count = (end - begin) / size_of(call_.dtype);
    if (weights_)
      weights_->mean->fold(out, inputs, reduce_, call_.dtype, count);
    else
      reduce_(out, inputs, n, count, scale_);
  }
  folded_ = end;
  if (local_.parts) {
    const size_t first = plan_.first_byte(*own_shard_);
    local_.parts->tell_result(first + begin, first + end);
  }
  send_result(out, begin, end);
}

void DirectReduction::send_result(const std::byte* data, size_t begin, size_t end) {
  if (is_scatter()) return;
  const auto weight = encode_weight(weights_ ? *weights_->total : 0);
  const int32_t n = host_->size();
  for (int32_t step = 1; step < n; ++step) {
    const Rank to((host_->self().value + step) % n);
    if (is_for_root() && to != call_.root) continue;
    post(to, FrameKind::kResult, *own_shard_, data, end - begin, begin, *own_bytes_,
         begin == 0, 0, weights_ ? weight : std::span<const std::byte>());
  }
}

void DirectReduction::finish_if_done() {
  if (!is_started() || is_over()) return;
  if (results_left_ > 0 || (own_shard_ && !own_done_) || pending_sends_ > 0) return;
  set_over();
  Outcome outcome;
  if (weights_) outcome.weight = weights_->total;
  succeed(std::move(outcome));
}

std::vector<Rank> DirectReduction::missing() const {
  std::vector<Rank> ranks;
  if (own_shard_ && !own_done_) {
    for (int32_t r = 0; r < host_->size(); ++r) {
      const FoldInput& source = sources_[static_cast<size_t>(r)];
      if (Rank(r) == host_->self()) continue;
      if (!source.has_come || source.bytes < source.total) ranks.push_back(Rank(r));
    }
  }
  if (!ranks.empty() || !wants_results()) return ranks;
  for (int32_t s = 0; s < num_shards(); ++s) {
    if (own_shard_ != s && !results_[static_cast<size_t>(s)].has_come) {
      ranks.push_back(owner(s));
    }
  }
  return ranks;
}

// The fold needs all contributions. Results matter after it, or if more bytes may be
// sent for them.
Rank DirectReduction::first_awaited() const {
  if (is_held_back()) return kNoRank;
  if (own_shard_ && !own_done_) {
    for (int32_t r = 0; r < host_->size(); ++r) {
      const FoldInput& source = sources_[static_cast<size_t>(r)];
      const bool has_more = source.bytes > folded_ || source.bytes == source.total;
      if (Rank(r) != host_->self() && !(source.has_come && has_more)) return Rank(r);
    }
    return kNoRank;
  }
  for (int32_t s = 0; wants_results() && s < num_shards(); ++s)
    if (own_shard_ != s && !results_[static_cast<size_t>(s)].has_come) return owner(s);
  return kNoRank;
}

// An owner that has called waits for all members.
std::vector<Rank> DirectReduction::awaited() const {
  return missing().empty() ? std::vector<Rank>() : others();
}

}  // namespace aikido::collectives

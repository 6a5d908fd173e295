// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/inflight_limit.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace aikido::transport {

// While nothing waits, the sender is slow and not the link. Then only a higher rate
// says something about the link.
std::optional<double> RateMeter::look(uint64_t delivered, bool waits, TimePoint now) {
  const Duration took = now - since_;
  std::optional<double> sample;
  if (took >= kSample) {
    const double seen = static_cast<double>(delivered - from_) / to_seconds(took);
    if (is_busy_) sample = seen;
    if (rate_ == 0 ? is_busy_ : seen > rate_) {
      rate_ = seen;
    } else if (is_busy_) {
      rate_ = (rate_ + seen) / 2;
    }
  } else if (is_busy_ && waits) {
    return std::nullopt;
  }
  is_busy_ = waits;
  since_ = now;
  from_ = delivered;
  return sample;
}

size_t InflightLimit::add(size_t segment_bytes) {
  auto free = std::find_if(flows_.begin(), flows_.end(),
                           [](const Flow& f) { return !f.is_used; });
  if (free == flows_.end()) free = flows_.emplace(flows_.end());
  *free = Flow{};
  free->is_used = true;
  // A segment that is larger than the known ones raises the least limit for all links.
  free->segment_bytes = segment_bytes;
  least_ = std::max(least_, kLeastSegments * segment_bytes);
  return static_cast<size_t>(free - flows_.begin());
}

void InflightLimit::remove(size_t link) {
  gone_ += flows_[link].written;
  flows_[link] = Flow{};
  if (asker_ == link) question_end_ = 0;
}

void InflightLimit::on_written(size_t link, size_t bytes, bool is_question) {
  if (bytes == 0) return;
  book(flows_[link], bytes);
  burst_left_ -= std::min(burst_left_, bytes);
  if (!is_question) return;
  asker_ = link;
  question_end_ = written_;
}

void InflightLimit::book(Flow& flow, size_t bytes) {
  flow.written += bytes;
  written_ += bytes;
  flow.chunks.push_back({flow.written, written_});
  flow.outstanding += bytes;
  outstanding_ += bytes;
}

void InflightLimit::on_look(size_t link, size_t outstanding, bool waits,
                            TimePoint now) {
  Flow& flow = flows_[link];
  if (outstanding < flow.outstanding || flow.outstanding == 0) flow.moved = now;
  // Links write without this object while there is no order. Those bytes are found
  // here.
  if (outstanding > flow.outstanding) book(flow, outstanding - flow.outstanding);
  flow.outstanding = outstanding;
  flow.waits = waits;
  // Only links with unacknowledged bytes can be stuck.
  flow.is_stuck = outstanding > 0 && now - flow.moved >= kStuck;
  const uint64_t acknowledged =
      flow.written - std::min<uint64_t>(flow.written, outstanding);
  flow.meter.look(acknowledged, waits, now);
  for (; !flow.chunks.empty() && flow.chunks.front().end <= acknowledged;
       flow.chunks.pop_front()) {
    if (flow.chunks.front().end_of_all <= left_) continue;
    // All bytes written before an acknowledged byte have left the uplink, on any link.
    left_ = flow.chunks.front().end_of_all;
    left_at_ = now;
  }
}

void InflightLimit::end_look(TimePoint now) {
  outstanding_ = 0;
  uint64_t delivered = gone_;
  num_waiting_ = 0;
  bool waits = false;
  for (const Flow& flow : flows_) {
    outstanding_ += flow.is_stuck ? 0 : flow.outstanding;
    delivered += flow.written - std::min<uint64_t>(flow.written, flow.outstanding);
    num_waiting_ += flow.waits && !flow.is_stuck ? 1 : 0;
    waits = waits || flow.waits;
  }
  // With nothing in flight the uplink cannot be still.
  if (left_ == written_) left_at_ = now;
  is_still_ = now - left_at_ >= kStill;
  was_excused_ = was_excused_ || is_excused();
  if (const auto sample = total_.look(delivered, waits, now)) {
    search_.on_sample(*sample, was_excused_, now);
    was_excused_ = is_excused();
  }
  search_.on_time(now);
  if (fixed_ > 0) {
    bytes_ = fixed_;
  } else {
    bytes_ = search_.has_learnt() ? bytes_of(total_.bytes_per_s()) : kMost;
  }
  // The burst of Note [short transfers], granted after a rest only.
  if (std::exchange(is_resting_, false) && outstanding_ <= least_)
    burst_left_ = burst_of(total_.bytes_per_s());
}

void InflightLimit::on_written_out(size_t link) {
  flows_[link].waits = false;
  flows_[link].meter.pause();
  is_resting_ = std::none_of(flows_.begin(), flows_.end(),
                             [](const Flow& flow) { return flow.waits; });
  if (is_resting_) total_.pause();
}

// True if bytes from before the present limit are in flight. Then the limit is not the
// reason that data waits.
bool InflightLimit::is_excused() const {
  return std::any_of(flows_.begin(), flows_.end(),
                     [&](const Flow& flow) { return flow.outstanding > bytes_; });
}

size_t InflightLimit::bytes_of(double bytes_per_s) const {
  if (bytes_per_s == 0 || search_.is_unlimited()) return kNoBound;
  const double worth = bytes_per_s * to_seconds(aim_.residence);
  const double limit = std::max(static_cast<double>(least_), worth);
  if (limit >= kMost) return kNoBound;
  return static_cast<size_t>(search_.steps() * limit);
}

// Note [short transfers] in the header.
size_t InflightLimit::burst_of(double bytes_per_s) const {
  if (!search_.has_learnt() || bytes_ == kNoBound || fixed_ > 0) return 0;
  const auto worth = static_cast<size_t>(bytes_per_s * to_seconds(aim_.burst));
  return worth > bytes_ ? worth : 0;
}

size_t InflightLimit::chunk_bytes() const {
  return bytes_ == kNoBound ? kNoBound
                            : std::max(kLeastChunk, bytes_ / aim_.num_chunks);
}

size_t InflightLimit::room(size_t link, Standing standing) const {
  if (bytes_ == kNoBound) return kNoBound;
  const Flow& flow = flows_[link];
  // A link must not use up the limit of all links, unless its data is more urgent.
  size_t own = bytes_;
  if (const double rate = flow.meter.bytes_per_s();
      rate > 0 && fixed_ == 0 && standing != Standing::kAhead) {
    const size_t least = std::max({chunk_bytes(), kLeastSegments * flow.segment_bytes,
                                   least_ / std::max<size_t>(1, num_waiting_)});
    const double worth = 2 * search_.steps() * rate * to_seconds(aim_.residence);
    own = std::min(own, std::max(least, static_cast<size_t>(worth)));
  }
  const size_t on_its_way =
      fixed_ > 0 ? outstanding_ : std::min<uint64_t>(outstanding_, written_ - left_);
  const size_t left = bytes_ - std::min(bytes_, on_its_way);
  return std::min(left, own - std::min(own, flow.outstanding));
}

InflightLimit::Grant InflightLimit::next_chunk(size_t link, Standing standing) const {
  const size_t whole = chunk_bytes();
  if (burst_left_ >= kLeastChunk && !flows_[link].is_stuck)
    return {std::max(whole, burst_left_), false};
  if (room(link, standing) >= whole / 2) return {whole, false};
  // One question at a time, over all links.
  const bool is_asked = left_ < question_end_ && !flows_[asker_].is_stuck;
  const bool may_ask = fixed_ == 0 && is_still_ && !is_asked &&
                       standing != Standing::kBehind &&
                       flows_[link].outstanding < kLeastChunk;
  return may_ask ? Grant{kLeastChunk, true} : Grant{};
}

Duration InflightLimit::next_look() const {
  const double rate = std::max(search_.learnt_bytes_per_s(), total_.bytes_per_s());
  if (rate == 0) return kSoonest;
  const double ns = 1e9 * static_cast<double>(chunk_bytes()) / rate;
  return std::clamp(Duration(static_cast<int64_t>(ns)), kSoonest, kLate);
}

}  // namespace aikido::transport

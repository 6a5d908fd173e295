// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/uplink_credit.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace aikido::transport {

// While nothing waits it is the sender that is slow: then only a higher rate says
// something about the link.
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

size_t UplinkCredit::add(size_t segment_bytes) {
  auto free = std::find_if(flows_.begin(), flows_.end(),
                           [](const Flow& f) { return !f.is_used; });
  if (free == flows_.end()) free = flows_.emplace(flows_.end());
  *free = Flow{};
  free->is_used = true;
  free->segment_bytes = segment_bytes;
  least_ = std::max(least_, kLeastSegments * segment_bytes);
  return static_cast<size_t>(free - flows_.begin());
}

void UplinkCredit::remove(size_t link) {
  gone_ += flows_[link].written;
  flows_[link] = Flow{};
}

void UplinkCredit::on_written(size_t link, size_t bytes) {
  Flow& flow = flows_[link];
  flow.written += bytes;
  outstanding_ -= counted(flow);
  flow.outstanding += bytes;
  outstanding_ += counted(flow);
}

double UplinkCredit::counted(const Flow& flow) const {
  if (flow.is_stuck) return 0;
  const auto all = static_cast<double>(flow.outstanding);
  const double rate = flow.meter.bytes_per_s();
  if (rate == 0 || fixed_ > 0) return all;
  return std::min(all, 2 * rate * to_seconds(kResidence));
}

void UplinkCredit::on_look(size_t link, size_t outstanding, bool waits, TimePoint now) {
  Flow& flow = flows_[link];
  if (outstanding < flow.outstanding || flow.outstanding == 0) flow.moved = now;
  flow.outstanding = outstanding;
  flow.waits = waits;
  flow.is_stuck = outstanding > 0 && now - flow.moved >= kStuck;
  flow.meter.look(flow.written - std::min<uint64_t>(flow.written, outstanding), waits,
                  now);
}

void UplinkCredit::end_look(TimePoint now) {
  outstanding_ = 0;
  uint64_t delivered = gone_;
  num_waiting_ = 0;
  bool waits = false;
  for (const Flow& flow : flows_) {
    outstanding_ += counted(flow);
    delivered += flow.written - std::min<uint64_t>(flow.written, flow.outstanding);
    num_waiting_ += flow.waits && !flow.is_stuck ? 1 : 0;
    waits = waits || flow.waits;
  }
  was_excused_ = was_excused_ || is_excused();
  if (const auto sample = total_.look(delivered, waits, now)) {
    on_sample(*sample, now);
    was_excused_ = is_excused();
  }
  if (mode_ == Mode::kOpen && now >= not_before_) begin(Mode::kBound);
  if (fixed_ > 0) {
    credit_ = fixed_;
  } else if (mode_ == Mode::kBound) {
    credit_ = credit_of(total_.bytes_per_s());
  } else {
    credit_ = mode_ == Mode::kLearn && with_bound_ == 0 ? kMost : kNoBound;
  }
}

// It is not the bound that keeps something from leaving, but what has left before.
bool UplinkCredit::is_excused() const {
  return std::any_of(flows_.begin(), flows_.end(),
                     [&](const Flow& flow) { return flow.outstanding > credit_; });
}

void UplinkCredit::begin(Mode mode) {
  mode_ = mode;
  num_samples_ = 0;
  sum_ = 0;
}

void UplinkCredit::on_sample(double bytes_per_s, TimePoint now) {
  if (mode_ == Mode::kOpen || bytes_per_s == 0) return;
  if (mode_ == Mode::kBound && was_excused_) return;
  ++num_samples_;
  sum_ += bytes_per_s;
  if (mode_ == Mode::kBound) {
    if (now >= not_before_ + open_for_) open_for_ = kOpenFirst;
    if (bytes_per_s >= kLow * learnt_ || now < not_before_) return begin(Mode::kBound);
    if (num_samples_ < 2 * kSamples) return;
    with_bound_ = sum_ / num_samples_;
    learnt_ = 0;
    return begin(Mode::kLearn);
  }
  if (num_samples_ < kSamples) return;
  const double before = std::exchange(learnt_, sum_ / kSamples);
  if (before == 0 || learnt_ > kGrown * before) return begin(Mode::kLearn);
  const bool is_starved = with_bound_ > 0 && learnt_ > kHigh * with_bound_;
  // The first bound is to be tried at once.
  if (with_bound_ > 0) not_before_ = now + (is_starved ? open_for_ : kNotAgainFor);
  if (is_starved) open_for_ = std::min(kOpen, 2 * open_for_);
  begin(is_starved ? Mode::kOpen : Mode::kBound);
}

size_t UplinkCredit::credit_of(double bytes_per_s) const {
  if (bytes_per_s == 0) return kNoBound;
  const double worth = bytes_per_s * to_seconds(kResidence);
  const size_t credit = std::max(least_, static_cast<size_t>(worth));
  return credit >= kMost ? kNoBound : credit;
}

size_t UplinkCredit::chunk_bytes() const {
  return credit_ == kNoBound ? kNoBound : std::max(kLeastChunk, credit_ / kChunks);
}

size_t UplinkCredit::room(size_t link) const {
  if (credit_ == kNoBound) return kNoBound;
  const Flow& flow = flows_[link];
  size_t own = credit_;
  if (const double rate = flow.meter.bytes_per_s(); rate > 0 && fixed_ == 0) {
    const size_t least = std::max({chunk_bytes(), kLeastSegments * flow.segment_bytes,
                                   least_ / std::max<size_t>(1, num_waiting_)});
    const double worth = 2 * rate * to_seconds(kResidence);
    own = std::min(own, std::max(least, static_cast<size_t>(worth)));
  }
  const auto counted = static_cast<size_t>(std::max(0.0, outstanding_));
  const size_t left = credit_ - std::min(credit_, counted);
  return std::min(left, own - std::min(own, flow.outstanding));
}

Duration UplinkCredit::next_look() const {
  const double rate = std::max(learnt_, total_.bytes_per_s());
  if (rate == 0) return kSoonest;
  const double ns = 1e9 * static_cast<double>(chunk_bytes()) / rate;
  return std::clamp(Duration(static_cast<int64_t>(ns)), kSoonest, latest_look());
}

Duration UplinkCredit::latest_look() const {
  return num_waiting_ > 0 ? kLate : kLatest;
}

}  // namespace aikido::transport

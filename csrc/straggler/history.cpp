// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/history.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "straggler/deadline.h"

namespace aikido::straggler {
namespace {

constexpr size_t kNumClasses = 32;
// Longer lags say nothing more, and their sums stay far from the end of the range.
constexpr Duration kLongestLag = std::chrono::hours(24);

}  // namespace

void DurationWindow::push(Duration value) {
  auto* begin = sorted_.data();
  if (size_ == kWindow) {
    auto* old = std::lower_bound(begin, begin + size_, in_order_of_time_[oldest_]);
    std::copy(old + 1, begin + size_, old);
    --size_;
  }
  auto* place = std::upper_bound(begin, begin + size_, value);
  std::copy_backward(place, begin + size_, begin + size_ + 1);
  *place = value;
  in_order_of_time_[oldest_] = value;
  oldest_ = (oldest_ + 1) % kWindow;
  ++size_;
}

Duration DurationWindow::median() const {
  return size_ == 0 ? Duration::zero() : sorted_[(size_ - 1) / 2];
}

History::History(std::shared_ptr<ResultLog> log, Duration floor, double worth)
    : log_(std::move(log)),
      world_size_(log_->world_size()),
      participants_(RankSet::full(world_size_)),
      floor_(floor),
      worth_(worth),
      members_(static_cast<size_t>(world_size_)),
      classes_(kNumClasses),
      call_lags_(world_size_),
      window_(world_size_),
      recent_(kNumRecent) {}

void History::set_members(const RankSet& members) {
  ++version_;
  log_->set_members(members);
  members.for_each([&](Rank rank) {
    if (participants_.contains(rank)) return;
    // The member is back, and has its missed results.
    member(rank).note_caught_up(log_->last());
  });
  participants_ = members;
  window_.forget_late_starts();
}

void History::forgive(Rank rank, Seq seq) {
  ++version_;
  member(rank).forgive(seq);
  window_.forgive(rank);
}

void History::forget_skips(Rank rank) {
  ++version_;
  member(rank).forget_skips();
}

void History::on_quorum(Seq seq, uint64_t bytes, TimePoint t_q, const RankSet& first) {
  ++version_;
  first.for_each([&](Rank rank) { note_called(rank, seq); });
  Recent& op = recent_[seq.value % kNumRecent];
  if (op.seq >= seq) return;
  if (op.is_committed)
    op.known.for_each_missing([&](Rank rank) { --member(rank).num_owed; });
  const size_t index = size_class(bytes);
  window_.on_quorum(seq, bytes, t_q);
  op = Recent{seq, index, t_q, RankSet(world_size_), RankSet(world_size_), false};
  SizeClass& c = class_at(index);
  if (c.has_quorum)
    c.periods.push(std::clamp(t_q - c.last_quorum, Duration::zero(), kLongestLag));
  c.last_quorum = t_q;
  c.has_quorum = true;
  first.for_each([&](Rank rank) { record(op, rank, t_q); });
}

void History::on_own_close(Seq seq, uint64_t bytes, const RankSet& mask, TimePoint t_q,
                           TimePoint now) {
  if (find(seq) == nullptr) on_quorum(seq, bytes, t_q, mask);
  window_.on_closed(seq, mask, participants_, now);
}

void History::on_quorum_after_half(uint64_t bytes, Duration lag) {
  ++version_;
  class_at(size_class(bytes))
      .after_half.push(std::clamp(lag, Duration::zero(), kLongestLag));
}

void History::on_arrival(Seq seq, Rank rank, TimePoint now) {
  if (Recent* op = find(seq)) record(*op, rank, now);
  on_called(rank, seq, now);
}

void History::on_too_slow(Seq seq, Rank rank, Duration lag) {
  ++version_;
  if (Recent* op = find(seq)) record(*op, rank, op->t_q + lag);
}

Duration History::on_silence(Seq seq, uint64_t bytes, Rank rank, Duration after) {
  auto& silences = class_at(size_class(bytes)).silences;
  silences.resize(static_cast<size_t>(world_size_));
  return silences[static_cast<size_t>(rank.value)].on_close(seq, after);
}

void History::end_silence(uint64_t bytes, Rank rank) {
  auto& silences = class_at(size_class(bytes)).silences;
  if (!silences.empty()) silences[static_cast<size_t>(rank.value)].end();
}

void History::on_called(Rank rank, Seq seq, TimePoint now) {
  ++version_;
  note_called(rank, seq);
  window_.on_called(rank, seq, now);
  call_lags_.on_called(rank, seq, now);
  SkipRecord& m = member(rank);
  if (m.is_last_late(seq) && is_rest(rank, seq)) m.take_back_last_late();
  if (m.num_owed == 0) return;
  for (Recent& op : recent_)
    if (op.is_committed && op.seq <= seq) record(op, rank, now);
}

// One shard is enough: the link of such a member works.
void History::note_masks(const Recent& op, const RankSet& mask) {
  SizeClass& its = class_at(op.size_class);
  its.included.resize(static_cast<size_t>(world_size_));
  mask.for_each([&](Rank rank) {
    const auto i = static_cast<size_t>(rank.value);
    its.included[i] = std::max(its.included[i], op.seq);
    if (!its.silences.empty()) its.silences[i].end();
  });
}

Seq History::last_included(Rank rank, uint64_t bytes) const {
  const auto& its = classes_[size_class(bytes)];
  return its && !its->included.empty() ? its->included[static_cast<size_t>(rank.value)]
                                       : Seq(0);
}

void History::on_committed(Seq seq, const RankSet& mask, uint64_t bytes) {
  ++version_;
  AIKIDO_CHECK(mask.world_size() == world_size_, "mask over ", mask.world_size(),
               " ranks, world of ", world_size_);
  if (Recent* op = find(seq)) {
    note_masks(*op, mask);
    if (!op->is_committed) note_missing(*op, mask);
  }
  mask.for_each([&](Rank rank) {
    note_called(rank, seq);
    member(rank).note_included(seq);
  });
  mask.for_each_missing([&](Rank rank) {
    if (participants_.contains(rank))
      note_skipped(rank, seq, true);
    else
      member(rank).note_absent(seq);
  });
  on_closed(seq, bytes);
}

void History::on_committed(Seq seq, const RankSet& in_time, const RankSet& covered,
                           Rank first_backup, uint64_t bytes) {
  ++version_;
  if (Recent* op = find(seq); op != nullptr && !op->is_committed)
    note_missing(*op, in_time);
  bool is_lost = false;
  for (int32_t r = 0; r < first_backup.value; ++r) {
    const Rank rank(r);
    SkipRecord& m = member(rank);
    if (in_time.contains(rank)) {
      note_called(rank, seq);
      m.note_included(seq);
      continue;
    }
    is_lost |= !covered.contains(rank);
    if (participants_.contains(rank))
      note_skipped(rank, seq, !covered.contains(rank));
    else if (!covered.contains(rank))
      m.note_absent(seq);
  }
  for (int32_t r = first_backup.value; r < world_size_; ++r) {
    SkipRecord& m = member(Rank(r));
    m.note_included(seq);
    if (is_lost && m.called() < seq) m.note_late(seq);
  }
  on_closed(seq, bytes);
}

Duration History::median_period(uint64_t bytes) const {
  const auto& c = classes_[size_class(bytes)];
  return c ? c->periods.median() : Duration::zero();
}

Duration History::median_after_half(uint64_t bytes) const {
  const auto& c = classes_[size_class(bytes)];
  return c ? c->after_half.median() : Duration::zero();
}

SkipRecord& History::member(Rank rank) {
  AIKIDO_CHECK(rank.value >= 0 && rank.value < world_size_, "rank ", rank.value,
               " of a world of ", world_size_);
  return members_[static_cast<size_t>(rank.value)];
}

const SkipRecord& History::member(Rank rank) const {
  return const_cast<History*>(this)->member(rank);
}

History::SizeClass& History::class_at(size_t index) {
  auto& c = classes_[index];
  if (!c) c = std::make_unique<SizeClass>();
  return *c;
}

History::Recent* History::find(Seq seq) {
  Recent& op = recent_[seq.value % kNumRecent];
  return op.seq == seq && seq > Seq(0) ? &op : nullptr;
}

void History::record(Recent& op, Rank rank, TimePoint now) {
  if (!op.known.insert(rank)) return;
  if (op.is_committed) --member(rank).num_owed;
  const Duration lag = std::clamp(now - op.t_q, Duration::zero(), kLongestLag);
  window_.on_lag(op.seq, rank, lag);
  if (op.seq <= member(rank).forgiven()) window_.forgive(rank);
  const Duration period = class_at(op.size_class).periods.median();
  if (lag > price_of_loss(period, world_size_, floor_, worth_)) return;
  op.little.insert(rank);
  member(rank).note_little(op.seq);
}

void History::note_called(Rank rank, Seq seq) {
  if (member(rank).note_called(seq)) log_->on_called(rank, seq);
}

// Requires: nothing. False for an operation that is no longer known.
bool History::is_rest(Rank rank, Seq seq) const {
  const Recent& op = recent_[seq.value % kNumRecent];
  const SizeClass* c = op.seq == seq ? classes_[op.size_class].get() : nullptr;
  const Duration period = c != nullptr ? c->periods.median() : Duration::zero();
  return call_lags_.is_rest(rank, seq,
                            price_of_loss(period, world_size_, floor_, worth_));
}

// Records the missing members of a commit whose lags are unknown.
void History::note_missing(Recent& op, const RankSet& in_time) {
  in_time.for_each_missing([&](Rank rank) {
    if (is_behind(rank, op.seq) || !participants_.contains(rank)) op.known.insert(rank);
  });
  op.is_committed = true;
  op.known.for_each_missing([&](Rank rank) { ++member(rank).num_owed; });
}

void History::note_skipped(Rank rank, Seq seq, bool is_lost) {
  const Recent* op = find(seq);
  const bool is_little = op != nullptr && op->little.contains(rank);
  SkipRecord& m = member(rank);
  const bool may_be_news = seq > m.forgiven() && !is_little;
  m.note_skipped(seq, is_lost, is_little, may_be_news && is_rest(rank, seq));
}

}  // namespace aikido::straggler

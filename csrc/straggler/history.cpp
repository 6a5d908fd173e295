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
    Record& m = member(rank);
    m.called = std::max(m.called, log_->last());
  });
  participants_ = members;
  window_.forget_late_starts();
}

void History::forgive(Rank rank, Seq seq) {
  ++version_;
  Record& m = member(rank);
  m.forgiven = seq;
  m.late = m.late_before = 0;
  window_.forgive(rank);
}

void History::forget_skips(Rank rank) {
  ++version_;
  Record& m = member(rank);
  m.consecutive = m.consecutive_before = 0;
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
  Record& m = member(rank);
  if (m.news == seq && is_rest(rank, seq)) {
    m.news = Seq(0);
    if (m.counted > seq) m.late_before -= std::min(m.late_before, 1u);
    m.late -= std::min(m.late, 1u);
  }
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
    note_included(member(rank), seq);
  });
  mask.for_each_missing([&](Rank rank) {
    if (participants_.contains(rank))
      note_skipped(rank, seq, true);
    else
      note_absent(member(rank), seq);
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
    Record& m = member(rank);
    if (in_time.contains(rank)) {
      note_called(rank, seq);
      note_included(m, seq);
      continue;
    }
    is_lost |= !covered.contains(rank);
    if (participants_.contains(rank))
      note_skipped(rank, seq, !covered.contains(rank));
    else if (!covered.contains(rank))
      note_absent(m, seq);
  }
  for (int32_t r = first_backup.value; r < world_size_; ++r) {
    Record& m = member(Rank(r));
    note_included(m, seq);
    if (is_lost && m.called < seq) note_late(m, seq);
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

bool History::is_behind(Rank rank, Seq seq) const {
  const Record& m = member(rank);
  // A skip in another shard of `seq` itself is no news about the member's calls.
  const Seq skipped = m.last_skipped == seq ? m.skipped_before : m.last_skipped;
  return m.called < std::min(skipped, seq) && m.called == m.called_when_skipped;
}

uint32_t History::consecutive_skips(Rank rank) const {
  return member(rank).consecutive;
}

uint32_t History::late_run(Rank rank) const {
  return member(rank).late;
}

uint32_t History::healthy_run(Rank rank) const {
  return member(rank).healthy;
}

Seq History::last_skipped(Rank rank) const {
  return member(rank).last_skipped;
}

Seq History::called(Rank rank) const {
  return member(rank).called;
}

History::Record& History::member(Rank rank) {
  AIKIDO_CHECK(rank.value >= 0 && rank.value < world_size_, "rank ", rank.value,
               " of a world of ", world_size_);
  return members_[static_cast<size_t>(rank.value)];
}

const History::Record& History::member(Rank rank) const {
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
  if (op.seq <= member(rank).forgiven) window_.forgive(rank);
  const Duration period = class_at(op.size_class).periods.median();
  if (lag > price_of_loss(period, world_size_, floor_, worth_)) return;
  op.little.insert(rank);
  // A run of late operations begins after this one.
  Record& m = member(rank);
  if (m.counted < op.seq) return;
  const uint64_t since = m.counted.value - op.seq.value;
  m.late = static_cast<uint32_t>(std::min<uint64_t>(m.late, since));
  m.late_before = std::min(m.late_before, m.late);
}

void History::note_called(Rank rank, Seq seq) {
  Record& m = member(rank);
  if (seq <= m.called) return;
  m.called = seq;
  log_->on_called(rank, seq);
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

void History::note_late(Record& m, Seq seq) {
  if (seq <= m.last_skipped) return;
  m.skipped_before = m.last_skipped;
  m.last_skipped = seq;
  m.called_when_skipped = m.called;
}

void History::note_skipped(Rank rank, Seq seq, bool is_lost) {
  Record& m = member(rank);
  m.healthy = 0;
  const Recent* op = find(seq);
  const bool is_little = op != nullptr && op->little.contains(rank);
  const uint32_t news = seq > m.forgiven && !is_little && !is_rest(rank, seq) ? 1 : 0;
  if (news > 0) m.news = std::max(m.news, seq);
  const uint32_t lost = is_lost ? 1 : 0;
  note_late(m, seq);
  if (seq > m.counted) {
    m.counted = seq;
    m.consecutive_before = m.consecutive;
    m.consecutive = is_lost ? m.consecutive + 1 : 0;
    m.late_before = is_little ? 0 : m.late;
    m.late = m.late_before + news;
  } else if (seq == m.counted) {
    if (is_lost) m.consecutive = m.consecutive_before + 1;
    m.late = m.late_before + news;
  } else {
    m.consecutive += lost;
    m.consecutive_before += lost;
    m.late += news;
    m.late_before += news;
  }
}

// The member could not contribute. That says nothing about its lateness when it can.
void History::note_absent(Record& m, Seq seq) {
  if (seq > m.counted) {
    m.counted = seq;
    m.consecutive_before = m.consecutive;
    ++m.consecutive;
    m.late_before = m.late;
  } else if (seq == m.counted) {
    m.consecutive = m.consecutive_before + 1;
  } else {
    ++m.consecutive;
    ++m.consecutive_before;
  }
}

void History::note_included(Record& m, Seq seq) {
  if (seq <= m.counted) return;
  ++m.healthy;
  m.counted = seq;
  m.consecutive_before = m.consecutive;
  m.consecutive = 0;
  m.late_before = m.late;
  m.late = 0;
}

}  // namespace aikido::straggler

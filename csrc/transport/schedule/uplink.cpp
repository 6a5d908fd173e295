// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/uplink.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace aikido::transport {
namespace {

// Limit of the bytes that all links write per turn, before other work of the loop.
constexpr size_t kUplinkTurnBytes = 1 << 20;

}  // namespace

Uplink::Uplink(EventLoop* loop, size_t credit_bytes)
    : loop_(loop),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      limit_(credit_bytes) {
  if (!timer_.is_open()) throw std::system_error(errno, std::generic_category());
  loop_->add(timer_.get(), EPOLLIN, this);
}

void Uplink::add(Sender* sender) {
  entries_.push_back({sender, limit_.add(sender->segment_bytes())});
}

void Uplink::remove(Sender* sender) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& e) { return e.sender == sender; });
  if (it == entries_.end()) return;
  limit_.remove(it->flow);
  entries_.erase(it);
}

void Uplink::note(Priority priority, bool may_cancel) {
  if (std::exchange(has_priority_, true) && priority != last_priority_)
    urgent_until_ = loop_->now() + kOrderedFor;
  if (may_cancel) stale_until_ = loop_->now() + kStaleFor;
  last_priority_ = priority;
}

void Uplink::ask() {
  if (!std::exchange(is_asked_, true)) loop_->request_flush(this);
}

void Uplink::on_events(uint32_t) {
  uint64_t times = 0;
  [[maybe_unused]] const auto n = ::read(timer_.get(), &times, sizeof times);
  is_timer_set_ = false;
  ask();
}

bool Uplink::has_more(const Entry& entry) const {
  return entry.sender->has_begun() || !entry.sender->scheduler().is_empty();
}

bool Uplink::can_start(const Entry& entry) const {
  return !entry.sender->is_blocked() && has_more(entry);
}

// Updates the bytes in flight of all links. Without a limit they only matter for the
// rate, so one look per sample is enough.
void Uplink::look() {
  const TimePoint now = loop_->now();
  limit_.set_aim(is_urgent() ? InflightLimit::kUrgent : InflightLimit::kStale);
  if (limit_.bytes() == InflightLimit::kNoBound && now - looked_ < RateMeter::kSample)
    return;
  looked_ = now;
  for (const Entry& e : entries_) {
    limit_.on_look(e.flow, e.sender->outstanding(), has_more(e), now);
  }
  limit_.end_look(now);
  const size_t limit = limit_.bytes();
  counters_.credit_bytes = limit == InflightLimit::kNoBound ? 0 : limit;
  counters_.bytes_per_s = static_cast<uint64_t>(limit_.bytes_per_s());
}

// Highest class of all links, if another link has only lower classes: the class that
// goes ahead of others.
std::optional<Priority> Uplink::ahead() const {
  std::optional<Priority> highest, lowest;
  for (const Entry& e : entries_) {
    const auto& scheduler = e.sender->scheduler();
    if (scheduler.is_empty()) continue;
    const Priority its = scheduler.highest();
    highest = std::max(highest.value_or(its), its);
    lowest = std::min(lowest.value_or(its), its);
  }
  return highest == lowest ? std::nullopt : highest;
}

InflightLimit::Grant Uplink::grant(const Entry& entry,
                                   std::optional<Priority> ahead) const {
  using enum InflightLimit::Standing;
  const auto& scheduler = entry.sender->scheduler();
  const bool is_ahead = ahead && !scheduler.is_empty() && scheduler.highest() == *ahead;
  // A begun frame is written to its end, even if that needs less than a chunk.
  const bool may_ask = !ahead && !entry.sender->has_begun();
  return limit_.next_chunk(entry.flow, is_ahead ? kAhead : may_ask ? kEqual : kBehind);
}

// Chooses the link of the next chunk: a begun frame first, then by class. Equal links
// take turns.
Uplink::Choice Uplink::choose(std::optional<Priority> ahead) {
  Choice best;
  NextChunk best_next;
  for (size_t i = 1; i <= entries_.size(); ++i) {
    const Entry& e = entries_[(last_ + i) % entries_.size()];
    if (!can_start(e)) continue;
    const InflightLimit::Grant its = grant(e, ahead);
    if (its.bytes == 0) continue;
    if (e.sender->has_begun()) {
      best = {&e, its};
      break;
    }
    const NextChunk next = *e.sender->scheduler().next(loop_->now());
    if (best.entry != nullptr && !goes_before(next, best_next)) continue;
    best = {&e, its};
    best_next = next;
  }
  if (best.entry != nullptr) last_ = static_cast<size_t>(best.entry - entries_.data());
  return best;
}

// True if no link has to wait for another: there is no limit, and all links have the
// same single class.
bool Uplink::all_are_equal() const {
  if (limit_.bytes() != InflightLimit::kNoBound) return false;
  std::optional<Priority> common;
  for (const Entry& e : entries_) {
    if (e.sender->scheduler().is_empty()) continue;
    const auto& scheduler = e.sender->scheduler();
    if (scheduler.num_classes() > 1) return false;
    if (common && *common != scheduler.highest()) return false;
    common = scheduler.highest();
  }
  return true;
}

void Uplink::count_inversion(const Entry& chosen, std::optional<Priority> ahead) {
  if (chosen.sender->has_begun()) return;
  const NextChunk starts = *chosen.sender->scheduler().next(loop_->now());
  // Overdue chunks are meant to go ahead of more urgent ones.
  if (starts.is_overdue) return;
  const bool has_passed_over =
      std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) {
        const auto& scheduler = e.sender->scheduler();
        return !scheduler.is_empty() && scheduler.highest() > starts.priority &&
               can_start(e) && grant(e, ahead).bytes > 0;
      });
  if (has_passed_over) SendCounters::add(counters_.inversions, 1);
}

void Uplink::flush() {
  is_asked_ = false;
  look();
  size_t total = 0;
  const auto note_written = [&](const Entry& entry, size_t bytes, bool is_question) {
    limit_.on_written(entry.flow, bytes, is_question);
    total += bytes;
  };
  // Without order between the links, whole turns save system calls.
  if (all_are_equal()) {
    for (const Entry& e : entries_)
      if (can_start(e)) note_written(e, e.sender->write_many(), false);
  } else {
    while (total < kUplinkTurnBytes) {
      const std::optional<Priority> highest = ahead();
      const auto [entry, its] = choose(highest);
      if (entry == nullptr) break;
      count_inversion(*entry, highest);
      note_written(*entry, entry->sender->write_chunk(its.bytes), its.is_question);
    }
  }
  bool is_left = false;
  for (const Entry& e : entries_) {
    is_left = is_left || can_start(e);
    if (!has_more(e)) limit_.on_written_out(e.flow);
  }
  if (is_left) wake_after(total >= kUplinkTurnBytes ? Duration(1) : next_look(total > 0));
}

// A peer may read nothing for a long time. So looks without a written chunk become
// rarer.
Duration Uplink::next_look(bool did_write) {
  const Duration soon = limit_.next_look();
  wait_ = did_write || limit_.is_moving()
              ? soon
              : std::clamp(2 * wait_, soon, InflightLimit::kLatest);
  return wait_;
}

void Uplink::wake_after(Duration wait) {
  if (std::exchange(is_timer_set_, true)) return;
  itimerspec at{};
  at.it_value.tv_nsec = static_cast<long>(wait.count());
  ::timerfd_settime(timer_.get(), 0, &at, nullptr);
}

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace aikido::transport {
namespace {

uint64_t ns(Duration d) {
  return static_cast<uint64_t>(d.count());
}

}  // namespace

bool goes_before(const NextChunk& a, const NextChunk& b) {
  if (a.is_overdue != b.is_overdue) return a.is_overdue;
  if (a.is_overdue && a.passed_since != b.passed_since)
    return a.passed_since < b.passed_since;
  return a.priority > b.priority;
}

// Place of the class of this priority: where it is, or where it would be inserted.
Scheduler::Classes::iterator Scheduler::find(Priority priority) {
  return std::find_if(classes_.begin(), classes_.end(),
                      [=](const Class& c) { return c.priority <= priority; });
}

Scheduler::Class& Scheduler::of(Priority priority, TimePoint now) {
  const auto it = find(priority);
  if (it != classes_.end() && it->priority == priority) return *it;
  RecycledMap<Place, Progress> none(recycler_);
  return *classes_.insert(it, Class{priority, std::move(none), now});
}

void Scheduler::push(const Waiting& m, TimePoint now) {
  Progress p{m.bytes, 0, chunk_bytes(m.most), now, std::nullopt, {}};
  auto& messages = of(m.priority, now).messages;
  const bool is_new = messages.emplace(Place(m.turn, m.id), std::move(p)).second;
  AIKIDO_CHECK(is_new, "message ", m.id, " is queued twice");
  queued_bytes_ += m.bytes;
}

// Note the exceptions in the header: kLastPriority is never overdue, and nothing goes
// ahead of kControlPriority.
bool Scheduler::is_overdue(const Class& found, TimePoint now) const {
  return found.priority != kLastPriority && found.priority != highest() &&
         highest() != kControlPriority && now - found.passed_since >= kMostPassed;
}

// Chooses the overdue class that has waited longest, or else the highest class.
// Requires: a message waits.
Scheduler::Classes::iterator Scheduler::choose(TimePoint now) {
  auto best = classes_.begin();
  bool is_best_overdue = false;
  for (auto it = std::next(best); it != classes_.end(); ++it) {
    if (!is_overdue(*it, now)) continue;
    if (is_best_overdue && it->passed_since >= best->passed_since) continue;
    best = it;
    is_best_overdue = true;
  }
  return best;
}

std::optional<NextChunk> Scheduler::next(TimePoint now) const {
  if (classes_.empty()) return std::nullopt;
  const auto it = const_cast<Scheduler*>(this)->choose(now);
  return NextChunk{it->priority, is_overdue(*it, now), it->passed_since};
}

std::optional<Chunk> Scheduler::pop(TimePoint now, size_t most) {
  if (classes_.empty()) return std::nullopt;
  const auto chosen = choose(now);
  Class& c = *chosen;
  const Priority priority = c.priority;
  const auto head = c.messages.begin();
  Progress& p = head->second;
  if (counters_ != nullptr)
    count_start(priority, head->first, p, is_overdue(c, now), now);
  c.passed_since = now;
  size_t longest = p.chunk_bytes;
  // Rounded to kGrain, so that no element is split between two chunks.
  if (most < longest) longest = std::max(kGrain, most / kGrain * kGrain);
  Chunk chunk{head->first.second, p.offset, std::min(longest, p.bytes - p.offset),
              false};
  p.offset += chunk.bytes;
  queued_bytes_ -= chunk.bytes;
  chunk.is_last = p.offset == p.bytes;
  current_.reset();
  if (!chunk.is_last) {
    current_.emplace(priority, head->first);
    return chunk;
  }
  if (counters_ != nullptr) count_end(priority, p, now);
  c.messages.erase(head);
  if (c.messages.empty()) classes_.erase(chosen);
  return chunk;
}

void Scheduler::put_back(const Chunk& chunk, const Waiting& m, TimePoint now) {
  const Place place(m.turn, m.id);
  const size_t longest = chunk_bytes(m.most);
  Progress& p = of(m.priority, now)
                    .messages
                    .emplace(place, Progress{m.bytes, m.bytes, longest, now, now, {}})
                    // The message may have been popped to its end; then emplace()
                    // inserts it again.
                    .first->second;
  AIKIDO_CHECK(p.offset == chunk.offset + chunk.bytes, "message ", chunk.message,
               " is at ", p.offset, ", put back was ", chunk.offset, " + ",
               chunk.bytes);
  p.offset = chunk.offset;
  queued_bytes_ += chunk.bytes;
  current_.reset();
  if (chunk.offset > 0) current_.emplace(m.priority, place);
  // Adding 2^64 - 1 subtracts one: the chunk will be counted again.
  if (counters_ != nullptr) SendCounters::add(counters_->chunks, ~uint64_t{0});
}

void Scheduler::move(const Waiting& m, Priority to, TimePoint now) {
  const auto from = find(m.priority);
  if (from == classes_.end() || from->priority != m.priority) return;
  const Place place(m.turn, m.id);
  const auto it = from->messages.find(place);
  if (it == from->messages.end()) return;
  Progress progress = it->second;
  from->messages.erase(it);
  if (from->messages.empty()) classes_.erase(from);
  of(to, now).messages.emplace(place, std::move(progress));
  if (current_ == std::pair(m.priority, place)) current_.emplace(to, place);
}

std::optional<size_t> Scheduler::cancel(const Waiting& m) {
  const auto of_class = find(m.priority);
  if (of_class == classes_.end() || of_class->priority != m.priority)
    return std::nullopt;
  auto& messages = of_class->messages;
  const auto it = messages.find(Place(m.turn, m.id));
  if (it == messages.end()) return std::nullopt;
  const size_t rest = it->second.bytes - it->second.offset;
  queued_bytes_ -= rest;
  messages.erase(it);
  if (messages.empty()) classes_.erase(of_class);
  return rest;
}

void Scheduler::clear() {
  classes_.clear();
  queued_bytes_ = 0;
  current_.reset();
}

// ---- counting ----

void Scheduler::count_start(Priority priority, const Place& place, Progress& p,
                            bool is_overdue, TimePoint now) {
  SendCounters& c = *counters_;
  SendCounters::add(c.chunks, 1);
  if (is_overdue) SendCounters::add(c.overdue_chunks, 1);
  if (priority == kControlPriority || priority == kLastPriority) return;
  // The last chunk's message has more, so it is paused by this one.
  if (current_ && *current_ != std::pair(priority, place)) {
    const auto of_class = find(current_->first);
    if (of_class != classes_.end() && of_class->priority == current_->first) {
      const auto it = of_class->messages.find(current_->second);
      if (it != of_class->messages.end()) it->second.paused = now;
    }
    if (priority > current_->first) SendCounters::add(c.preemptions, 1);
  }
  if (p.paused) p.pauses += now - *std::exchange(p.paused, std::nullopt);
  if (p.offset == 0) {
    // From here on `since` is the start of the first chunk.
    SendCounters::add(c.queued_ns, ns(now - p.since));
    p.since = now;
  }
}

void Scheduler::count_end(Priority priority, const Progress& p, TimePoint now) {
  if (priority == kControlPriority || priority == kLastPriority) return;
  SendCounters::add(counters_->paused_ns, ns(p.pauses));
  SendCounters::add(counters_->wire_ns, ns(now - p.since - p.pauses));
}

}  // namespace aikido::transport

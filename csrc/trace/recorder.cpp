// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/recorder.h"

#include <algorithm>
#include <limits>

#include "trace/stop_watch.h"

namespace aikido::trace {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Recorder::Recorder(size_t spans_per_thread, const Clock* clock)
    : spans_per_thread_(spans_per_thread),
      clock_(clock == nullptr ? &system_clock_ : clock),
      id_(next_id()) {}

Recorder::~Recorder() {
  if (!own_process_.is_here()) {  // a forked child has no such thread
    if (watcher_.joinable()) watcher_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  watch_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

void Recorder::arm() {
  const std::lock_guard lock(mutex_);
  is_armed_by_hand_ = true;
  arm_as_due();
}

void Recorder::arm_steps(int64_t first, int64_t last) {
  const std::lock_guard lock(mutex_);
  first_step_ = first;
  last_step_ = last;
  arm_as_due();
}

void Recorder::disarm() {
  const std::lock_guard lock(mutex_);
  is_armed_by_hand_ = false;
  last_step_ = first_step_ - 1;
  arm_as_due();
}

void Recorder::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_.store(step, std::memory_order_relaxed);
  arm_as_due();
}

// Under the lock.
void Recorder::arm_as_due() {
  const int64_t step = step_.load(std::memory_order_relaxed);
  const bool is_due = is_armed_by_hand_ || (first_step_ <= step && step <= last_step_);
  if (is_armed_.exchange(is_due, std::memory_order_relaxed) == is_due || !is_due)
    return;
  if (!watcher_.joinable()) watcher_ = std::thread([this] { watch_for_stops(); });
  watch_.notify_all();
}

void Recorder::watch_for_stops() {
  StopWatch stops;
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    if (!is_armed()) {
      stops.restart();
      watch_.wait(lock, [this] { return is_ending_ || is_armed(); });
      continue;
    }
    watch_.wait_for(lock, StopWatch::kInterval, [this] { return is_ending_; });
    auto span = stops.look(clock_->now());
    if (!span) continue;
    span->step = step();
    lock.unlock();
    record(*span);
    lock.lock();
  }
}

Ring* Recorder::ring_of_this_thread() {
  const std::lock_guard lock(mutex_);
  const auto it = rings_.find(std::this_thread::get_id());
  if (it != rings_.end()) return it->second.get();
  if (rings_.size() == kMaxThreads) return nullptr;
  auto& ring = rings_[std::this_thread::get_id()];
  ring = std::make_unique<Ring>(spans_per_thread_);
  return ring.get();
}

void Recorder::record(const Span& span) {
  struct Mine {
    uint64_t recorder = 0;
    Ring* ring = nullptr;
  };
  thread_local Mine mine;
  if (mine.recorder != id_) mine = {id_, ring_of_this_thread()};
  if (mine.ring == nullptr) {
    num_dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  mine.ring->push(span);
}

uint16_t Recorder::name(const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find(names_.begin(), names_.end(), text);
  if (it != names_.end()) return static_cast<uint16_t>(it - names_.begin());
  if (names_.size() == std::numeric_limits<uint16_t>::max())
    return std::numeric_limits<uint16_t>::max() - 1;
  names_.push_back(text);
  return static_cast<uint16_t>(names_.size() - 1);
}

void Recorder::add(const Unfinished* calls) {
  const std::lock_guard lock(mutex_);
  unfinished_.push_back(calls);
}

void Recorder::remove(const Unfinished* calls) {
  const std::lock_guard lock(mutex_);
  std::erase(unfinished_, calls);
}

Recorder::Taken Recorder::take() {
  const std::lock_guard lock(mutex_);
  Taken taken;
  taken.names = names_;
  taken.num_dropped = num_dropped_.exchange(0, std::memory_order_relaxed);
  uint8_t thread = 0;
  for (const auto& [id, ring] : rings_) {
    const size_t before = taken.spans.size();
    ring->pop_all(taken.spans);
    taken.num_dropped += ring->take_dropped();
    for (size_t i = before; i < taken.spans.size(); ++i) taken.spans[i].thread = thread;
    ++thread;
  }
  for (const Unfinished* calls : unfinished_)
    calls->add_open(to_ns(now()), taken.spans);
  return taken;
}

}  // namespace aikido::trace

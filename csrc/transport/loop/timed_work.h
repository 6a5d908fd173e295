// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Objects with work that is due at some time. Thread of the turn.
//
// Note [timed work]
// A spinning thread runs many turns before any timed work becomes due. To ask all timed
// objects would be a large part of an empty turn. So a turn asks only if no turn has
// asked for kMostLate. Timed work is late by at most that, or by the time that a loop
// stays awake. Before a thread sleeps, or leaves a loop at rest, it asks for the next
// due time and does all work that is due by then.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace aikido::transport {

// Object with work that is due at some time.
class Timed {
 public:
  virtual ~Timed() = default;
  // Does the work that is due at `now`.
  virtual void on_time(TimePoint now) = 0;
  // Time of the next on_time(). Empty: not before another event.
  [[nodiscard]] virtual std::optional<TimePoint> next_look() const = 0;
};

class TimedWork {
 public:
  // Largest delay of timed work while turns run; see Note [timed work].
  static constexpr Duration kMostLate = std::chrono::microseconds(50);

  void add(Timed* timed) { timed_.push_back(timed); }
  void remove(Timed* timed) { std::erase(timed_, timed); }

  // Does the work that is due, unless a turn has asked for it within kMostLate.
  void run(TimePoint now) {
    if (now < ask_at_) return;
    ask_at_ = now + kMostLate;
    // By index, because on_time() may add and remove objects.
    for (size_t i = 0; i < timed_.size(); ++i) {
      const auto due = timed_[i]->next_look();
      if (due && *due <= now) timed_[i]->on_time(now);
    }
  }
  // The next run() asks, however soon it is.
  void ask_soon() { ask_at_ = TimePoint::min(); }
  // TimePoint::max(): nothing is due before another event.
  TimePoint next_due() const {
    TimePoint earliest = TimePoint::max();
    for (const Timed* timed : timed_)
      earliest = std::min(earliest, timed->next_look().value_or(earliest));
    return earliest;
  }

 private:
  std::vector<Timed*> timed_;
  TimePoint ask_at_ = TimePoint::min();  // no run() before this time asks
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Time is an interface. Decisions receive `now` as an argument; only SystemClock reads
// the machine, and the event loop asks it once per turn. Tests turn a clock by hand.

#include <chrono>

namespace aikido {

using Duration = std::chrono::nanoseconds;

// Marks time points of aikido's own monotonic time, comparable inside one process only.
struct MonotonicTime {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicTime, duration>;
  static constexpr bool is_steady = true;
};
using TimePoint = MonotonicTime::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes backwards. Any thread.
  [[nodiscard]] virtual TimePoint now() const = 0;
  // The time of the machine. Later than now() where now() stands still for a while, as
  // in a turn of an event loop. Any thread.
  [[nodiscard]] virtual TimePoint latest() const { return now(); }
  // All data that arrived before this time have been read. Only for the thread that is
  // in a turn of an event loop.
  [[nodiscard]] virtual TimePoint read_before() const { return now(); }
};

class SystemClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override;
};

constexpr double to_ms(Duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}
constexpr double to_seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
// Rounds towards zero.
constexpr Duration from_ms(double ms) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(ms));
}
// Rounds towards zero.
constexpr Duration scaled(Duration d, double factor) {
  return Duration(static_cast<int64_t>(static_cast<double>(d.count()) * factor));
}

}  // namespace aikido

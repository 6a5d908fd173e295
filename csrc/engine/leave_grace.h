// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Time after an orderly leave of a member in which no call ends for lack of members.
// Note [leaving after a failed call] in group_ends.cpp has the reason. One thread, no
// clock.

#include <optional>
#include <utility>

#include "base/clock.h"

namespace aikido::engine {

class LeaveGrace {
 public:
  // Longer than the notice of a failure takes.
  static constexpr Duration kLength = std::chrono::milliseconds(100);

  // A member has left. The time begins anew.
  void begin(TimePoint now) { end_ = now + kLength; }
  // nullopt: no member has left, or take_end() has returned true since.
  [[nodiscard]] std::optional<TimePoint> end() const { return end_; }
  bool is_running(TimePoint now) const { return end_ && now < *end_; }
  // Returns true once, when the time is over.
  bool take_end(TimePoint now) {
    if (!end_ || now < *end_) return false;
    end_.reset();
    return true;
  }
  // Stops the time until resume() gets the returned value.
  [[nodiscard]] std::optional<TimePoint> pause() {
    return std::exchange(end_, std::nullopt);
  }
  void resume(std::optional<TimePoint> paused) { end_ = paused; }

 private:
  std::optional<TimePoint> end_;
};

}  // namespace aikido::engine

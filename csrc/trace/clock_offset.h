// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Estimate of another member's clock relative to the own clock, from questions and
// answers. Pure: samples in, a line out. One thread.
//
// Note [the estimate]
// An answer contains the time of the other clock at some moment between question and
// answer. The middle of that interval is wrong by at most half of the round trip. As in
// NTP's clock filter (RFC 5905, section 10), a sample counts less if its round trip is
// longer than the shortest. The excess is waiting time of unknown direction. The line
// is fitted by least squares. The weights are the inverse squares of the excess plus
// kLeastNoise, which even a calm network has.
//
// The slope of the line is the drift. Quartz clocks drift by tens of ppm, so
// kUsualDrift is its prior standard deviation (ridge regression: Hoerl and Kennard,
// Technometrics 12, 1970). So the drift stays near 0 as long as noise would determine
// it, and becomes the measured one when the samples are far enough apart.
//
// Note [the first minute]
// Assumed: a drift of up to 100 ppm, and paths of 0.02 to 0.2 ms each way that vary by
// 30 %. Then the line is within 0.5 ms, for all times since the first sample and for
// the next 2 s:
// - from the 1st sample on, if no queue delays the questions;
// - from the 16th, if a third of the questions meets a queue of 20 ms on average,
//   always in the same direction, and two of the first 16 do, while all members
//   connect;
// - from the 24th, if half of the questions do;
// - from the 36th, if 70 % do.
// By pause_after() the 24th question is sent 0.1 s after the first 16, and the 36th 0.6
// s after them. Before that, perhaps no question has met an empty path. A queue that
// delays all questions in one direction looks like another offset.

#include <cstddef>
#include <deque>
#include <optional>

#include "base/clock.h"

namespace aikido::trace {

struct ClockSample {
  TimePoint asked;     // own clock
  TimePoint answered;  // clock of the other member
  TimePoint heard;     // own clock
};

// theirs = ours + offset + drift * (ours - at).
struct ClockLine {
  TimePoint at;       // own clock
  Duration offset{};  // at that time
  double drift = 0;   // fraction of the own time by which the other clock is faster
  Duration error{};   // half of the shortest round trip

  TimePoint theirs(TimePoint ours) const;
};

class ClockOffset {
 public:
  static constexpr size_t kKept = 512;  // most recent samples that count
  static constexpr double kUsualDrift = 1e-4;
  // Larger than the drift of any clock; an estimate beyond it is not used.
  static constexpr double kMostDrift = 1e-3;
  // Least noise of a sample: this, plus this share of the shortest round trip.
  static constexpr Duration kLeastNoise = std::chrono::microseconds(2);
  static constexpr double kLeastNoiseShare = 1.0 / 32;

  // Pause before the next question, after so many answers. The first questions follow
  // at once. Later pauses grow, so that the drift is known soon.
  static constexpr size_t kAtOnce = 16;
  static constexpr Duration kFirstPause = std::chrono::milliseconds(10);
  static constexpr double kPauseGrows = 1.1;  // factor from each answer to the next
  static constexpr Duration kLongestPause = std::chrono::seconds(1);
  static Duration pause_after(size_t num_answers);

  // Ignores samples that cannot be right, such as an answer before its question.
  void add(const ClockSample& sample);
  // Empty before the first sample.
  std::optional<ClockLine> line() const;

 private:
  std::deque<ClockSample> samples_;
};

}  // namespace aikido::trace

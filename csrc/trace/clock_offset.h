// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How the clock of another member goes beside ours, from questions and answers. PURE:
// samples in, a line out. One thread.
//
// Note [the estimate]
// An answer says what the other clock was at some moment between question and answer.
// Its middle is wrong by at most half of the round trip. As in NTP's clock filter (RFC
// 5905, section 10) it is trusted the less the longer its round trip is than the
// shortest one: that excess is waiting, of which nobody knows in which direction it
// was. Through the samples goes a line by least squares, weighted by the inverse square
// of that excess and of kLeastNoise, which even a calm network has.
//
// The slope of the line is the drift. Quartz clocks drift by tens of ppm, so
// kUsualDrift is taken for its standard deviation beforehand (ridge regression: Hoerl
// and Kennard, Technometrics 12, 1970). So the drift is near 0 as long as noise would
// decide about it, and what is measured when the samples are far enough apart.
//
// Note [the first minute]
// A drift of up to 100 ppm, and paths of 0.02 to 0.2 ms each way that vary by 30 %: the
// line is within 0.5 ms for all times since the first sample and for the next 2 s
//   from the 1st sample on, where nothing waits in queues,
//   from the 16th, where a third of the questions meets a queue of up to 20 ms in the
//     mean, always the same way, and the first 16, while all connect, two of them,
//   from the 24th, where half of the questions does,
//   from the 36th, where 70 % do.
// By pause_after() the 24th is asked 0.1 s after the first 16, and the 36th 0.6 s after
// them. Before, perhaps no question has found the path empty, and a queue that all meet
// in the same direction cannot be told from another offset.

#include <cstddef>
#include <deque>
#include <optional>

#include "base/clock.h"

namespace aikido::trace {

struct ClockSample {
  TimePoint asked;     // by our clock
  TimePoint answered;  // by the other
  TimePoint heard;     // by ours
};

// theirs = ours + offset + drift * (ours - at).
struct ClockLine {
  TimePoint at;       // by our clock
  Duration offset{};  // at that time
  double drift = 0;   // share of our time that theirs gains
  Duration error{};   // half of the shortest round trip

  TimePoint theirs(TimePoint ours) const;
};

class ClockOffset {
 public:
  static constexpr size_t kKept = 512;  // samples, the latest ones
  static constexpr double kUsualDrift = 1e-4;
  // What no clock drifts by: what says so is not believed.
  static constexpr double kMostDrift = 1e-3;
  // Of a sample: so much, and this share of the shortest round trip.
  static constexpr Duration kLeastNoise = std::chrono::microseconds(2);
  static constexpr double kLeastNoiseShare = 1.0 / 32;

  // How long to wait with the next question after so many answers: first not at all,
  // then ever longer, so that the drift is known soon.
  static constexpr size_t kAtOnce = 16;
  static constexpr Duration kFirstPause = std::chrono::milliseconds(10);
  static constexpr double kPauseGrows = 1.1;  // from answer to answer
  static constexpr Duration kLongestPause = std::chrono::seconds(1);
  static Duration pause_after(size_t num_answers);

  // Samples that say nothing, such as one that was heard before it was asked, are left
  // out.
  void add(const ClockSample& sample);
  // Empty before the first sample.
  std::optional<ClockLine> line() const;

 private:
  std::deque<ClockSample> samples_;
};

}  // namespace aikido::trace

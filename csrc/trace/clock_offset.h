// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How the clock of another member goes beside ours, from questions and answers. PURE:
// samples in, a line out. One thread.
//
// Note [the estimate]
// An answer says what the other clock was at some moment between question and answer.
// Half of the round trip is the most that the middle of it can be wrong, so of every
// few samples only that with the shortest round trip counts, as in NTP's clock filter
// (RFC 5905, section 10). Through these goes a line by least squares, weighted by the
// inverse square of the round trip; its slope is the drift. Samples that took much
// longer than the best are left out. With one sample, or several in less than
// kLeastSpan, the drift is taken for 0.

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
  static constexpr size_t kPerBlock = 8;  // samples of which one counts
  static constexpr size_t kBlocks = 64;   // that are kept
  static constexpr Duration kLeastSpan = std::chrono::seconds(1);
  // Quartz clocks are within a tenth of it.
  static constexpr double kMostDrift = 1e-3;

  // Samples that say nothing, such as one that was heard before it was asked, are left
  // out.
  void add(const ClockSample& sample);
  // Empty before the first sample.
  std::optional<ClockLine> line() const;

 private:
  std::deque<ClockSample> best_;  // of each block; the last one is being filled
  size_t in_last_ = 0;
};

}  // namespace aikido::trace

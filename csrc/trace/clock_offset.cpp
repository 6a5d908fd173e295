// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/clock_offset.h"

#include <algorithm>
#include <cmath>

namespace aikido::trace {
namespace {

Duration trip(const ClockSample& s) {
  return s.heard - s.asked;
}
TimePoint middle(const ClockSample& s) {
  return s.asked + trip(s) / 2;
}
Duration offset(const ClockSample& s) {
  return s.answered - middle(s);
}

}  // namespace

TimePoint ClockLine::theirs(TimePoint ours) const {
  const double gained = drift * static_cast<double>((ours - at).count());
  return ours + offset + Duration(std::llround(gained));
}

Duration ClockOffset::pause_after(size_t num_answers) {
  if (num_answers < kAtOnce) return Duration(0);
  const double grown =
      std::pow(kPauseGrows, static_cast<double>(num_answers - kAtOnce));
  const double most = to_ms(kLongestPause);
  return from_ms(std::min(most, to_ms(kFirstPause) * grown));
}

void ClockOffset::add(const ClockSample& sample) {
  if (sample.heard < sample.asked) return;
  samples_.push_back(sample);
  if (samples_.size() > kKept) samples_.pop_front();
}

std::optional<ClockLine> ClockOffset::line() const {
  if (samples_.empty()) return std::nullopt;
  const auto best =
      *std::min_element(samples_.begin(), samples_.end(),
                        [](const auto& a, const auto& b) { return trip(a) < trip(b); });
  ClockLine line{middle(best), offset(best), 0, trip(best) / 2};
  const double least = static_cast<double>(kLeastNoise.count()) +
                       kLeastNoiseShare * static_cast<double>(trip(best).count());
  // Relative to the best sample, so that no digits are lost.
  const auto each = [&](auto&& visit) {
    for (const ClockSample& s : samples_) {
      const double noise = least + static_cast<double>((trip(s) - trip(best)).count());
      visit(static_cast<double>((middle(s) - line.at).count()),
            static_cast<double>((offset(s) - line.offset).count()),
            1 / (noise * noise));
    }
  };
  double weights = 0, x_mean = 0, y_mean = 0;
  each([&](double x, double y, double weight) {
    weights += weight;
    x_mean += weight * x;
    y_mean += weight * y;
  });
  x_mean /= weights;
  y_mean /= weights;
  double xx = 1 / (kUsualDrift * kUsualDrift), xy = 0;
  each([&](double x, double y, double weight) {
    xx += weight * (x - x_mean) * (x - x_mean);
    xy += weight * (x - x_mean) * (y - y_mean);
  });
  line.drift = std::clamp(xy / xx, -kMostDrift, kMostDrift);
  line.offset += Duration(std::llround(y_mean - line.drift * x_mean));
  return line;
}

}  // namespace aikido::trace

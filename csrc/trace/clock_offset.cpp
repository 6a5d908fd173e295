// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/clock_offset.h"

#include <algorithm>
#include <cmath>

namespace aikido::trace {
namespace {

// Beside twice the best round trip: what a healthy network takes more or less.
constexpr Duration kUsualJitter = std::chrono::microseconds(50);

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

void ClockOffset::add(const ClockSample& sample) {
  if (sample.heard < sample.asked) return;
  if (best_.empty() || in_last_ == kPerBlock) {
    best_.push_back(sample);
    if (best_.size() > kBlocks) best_.pop_front();
    in_last_ = 1;
    return;
  }
  ++in_last_;
  if (trip(sample) <= trip(best_.back())) best_.back() = sample;
}

std::optional<ClockLine> ClockOffset::line() const {
  if (best_.empty()) return std::nullopt;
  const auto best =
      *std::min_element(best_.begin(), best_.end(),
                        [](const auto& a, const auto& b) { return trip(a) < trip(b); });
  ClockLine line{middle(best), offset(best), 0, trip(best) / 2};
  const Duration most = 2 * trip(best) + kUsualJitter;
  // Relative to the best sample, so that no digits are lost.
  double weights = 0, x_mean = 0, y_mean = 0;
  const auto each = [&](auto&& visit) {
    for (const ClockSample& s : best_) {
      if (trip(s) > most) continue;
      const double t = std::max(1.0, static_cast<double>(trip(s).count()));
      visit(static_cast<double>((middle(s) - line.at).count()),
            static_cast<double>((offset(s) - line.offset).count()), 1 / (t * t), s);
    }
  };
  TimePoint first = line.at, last = line.at;
  each([&](double x, double y, double weight, const ClockSample& s) {
    weights += weight;
    x_mean += weight * x;
    y_mean += weight * y;
    first = std::min(first, middle(s));
    last = std::max(last, middle(s));
  });
  if (last - first < kLeastSpan) return line;
  x_mean /= weights;
  y_mean /= weights;
  double xx = 0, xy = 0;
  each([&](double x, double y, double weight, const ClockSample&) {
    xx += weight * (x - x_mean) * (x - x_mean);
    xy += weight * (x - x_mean) * (y - y_mean);
  });
  line.drift = std::clamp(xy / xx, -kMostDrift, kMostDrift);
  line.offset += Duration(std::llround(y_mean - line.drift * x_mean));
  return line;
}

}  // namespace aikido::trace

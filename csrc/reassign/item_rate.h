// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Measured speed of one rank: nanoseconds for one unit of predicted cost. One thread,
// no clock.
//
// Note [speed of a rank]
// The speed is the median over the last kWindow items, so a single slow item (garbage
// collection, a page fault) and errors of the predicted costs change little. A change
// of the speed would need half of the window to show. So if the median of the last
// kRecent items lies outside of the noise of the window, the older items are forgotten.
//   A large change shows at once: if the last item is far outside of the noise, its
// speed is the present speed until the next item ends. Decisions about moves use the
// present speed. A wrong alarm costs a few moves during one item. Without this rule, a
// rank whose slow first item has ended would claim more items as if it were fast.

#include <array>
#include <cstddef>
#include <optional>

#include "base/clock.h"

namespace aikido::reassign {

class ItemRate {
 public:
  static constexpr size_t kWindow = 16;
  static constexpr size_t kRecent = 3;
  // The last items show a change if they differ by this share, and by this many
  // deviations.
  static constexpr double kLeastChange = 0.25;
  static constexpr double kChangeDeviations = 3;
  // One item shows a change if it differs by this factor, and by this many deviations.
  static constexpr double kLargeChange = 2;
  static constexpr double kLargeChangeDeviations = 5;

  // An item of `cost` took `took`. Ignored if either is not above 0.
  void on_item(double cost, Duration took);
  // Nanoseconds per unit of cost; nullopt: no item is finished yet.
  std::optional<double> ns_per_cost() const { return median_; }
  // The same at present: of the last item alone, if that shows a large change.
  std::optional<double> present_ns_per_cost() const;
  // Typical relative error of the time of one item, as of a normal distribution.
  double deviation() const { return deviation_; }

 private:
  void measure();

  std::array<double, kWindow> rates_{};  // oldest first
  size_t size_ = 0;
  std::optional<double> median_;
  double deviation_ = 0;
};

}  // namespace aikido::reassign

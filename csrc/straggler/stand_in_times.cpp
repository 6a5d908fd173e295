// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/stand_in_times.h"

#include <algorithm>

namespace aikido::straggler {
namespace {

constexpr size_t kQuantileTenths = 9;

}  // namespace

void StandInTimes::on_taken(uint64_t bytes, Duration took) {
  const size_t index = size_class(bytes);
  if (index >= classes_.size()) classes_.resize(index + 1);
  classes_[index].push(std::clamp(took, Duration::zero(), kLongestDeadline));
}

Duration StandInTimes::patience(uint64_t bytes, Duration lasted) const {
  const size_t index = size_class(bytes);
  Duration expected{0};
  size_t known = 0;
  if (index < classes_.size() && classes_[index].size() > 0) {
    const auto sorted = classes_[index].sorted();
    known = sorted.size();
    const bool is_known = known >= options_.warmup_operations;
    expected = is_known ? sorted[(known - 1) * kQuantileTenths / 10] : sorted.back();
    expected = scaled(expected, options_.slack);
  }
  if (known < options_.warmup_operations)
    expected =
        std::max(expected, 2 * std::clamp(lasted, Duration::zero(), kLongestDeadline));
  const Duration ceiling = std::min(options_.ceiling, longest_);
  return std::min(std::max(expected, options_.floor), ceiling);
}

}  // namespace aikido::straggler

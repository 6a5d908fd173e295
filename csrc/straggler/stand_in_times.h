// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Times of backups' contributions from the request to the last byte, by size class, and
// the patience with a requested contribution. One thread, no clock.

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "straggler/history.h"
#include "straggler/policy.h"

namespace aikido::straggler {

class StandInTimes {
 public:
  // Requires: validated options.
  explicit StandInTimes(const PolicyOptions& options) : options_(options) {}

  // A contribution took `took`, or was given up after that time.
  void on_taken(uint64_t bytes, Duration took);

  // Time to wait for a contribution of `bytes`, in an operation that has lasted
  // `lasted` until the request: slack times the 9th of 10 observed times, between floor
  // and ceiling. Before warmup_operations times are known: twice `lasted`, and at least
  // slack times the longest known time.
  Duration patience(uint64_t bytes, Duration lasted) const;

  // Limits all patience, independent of the options.
  void limit(Duration longest) { longest_ = longest; }

 private:
  PolicyOptions options_;
  Duration longest_ = Duration::max();
  std::vector<DurationWindow> classes_;  // up to the largest class in use
};

}  // namespace aikido::straggler

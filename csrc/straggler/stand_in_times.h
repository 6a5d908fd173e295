// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How long contributions of backups take from the question to the last byte, by size
// class, and so how long one that was asked for is waited for. One thread, no clock.

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

  // One took so long, or was given up after that.
  void on_taken(uint64_t bytes, Duration took);

  // How long to wait for one of an operation of `bytes` that has lasted for `lasted`
  // until the question: slack times what nine of ten took, between floor and ceiling.
  // Before warmup_operations of them are known twice as long as the operation has
  // lasted, and slack times the longest of them.
  Duration patience(uint64_t bytes, Duration lasted) const;

  // No patience is longer than this, whatever the options say.
  void limit(Duration longest) { longest_ = longest; }

 private:
  PolicyOptions options_;
  Duration longest_ = Duration::max();
  std::vector<Window> classes_;  // as far as they are in use
};

}  // namespace aikido::straggler

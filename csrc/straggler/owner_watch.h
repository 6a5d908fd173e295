// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How long the result of one owner may be missing after those of all others: adaptive
// like the deadline of a contribution (our design). It is made from the lags of the
// last results in the last operations, and is never longer than all else took in this
// one: an owner that is slow from the first operation on does not become the measure.
// Nor is it shorter than a part of that, since links are not equally fast in every
// operation, and to move shards from an owner that is well costs more than to wait.
// One thread, no clock.

#include <array>

#include "straggler/history.h"
#include "straggler/policy.h"

namespace aikido::straggler {

class OwnerWatch {
 public:
  // Requires: validated options.
  explicit OwnerWatch(const PolicyOptions& options) : options_(options) {}

  // The last result of another owner, of shards of `bytes`, came `lag` after all
  // else was here; 0 if something of our own was last.
  void on_lag(uint64_t bytes, Duration lag);
  // kHeadRoom * slack times the 19th of 20 lags, and at least took / kLeastPart; or
  // `took` if that is shorter or fewer than warmup_operations lags are known; between
  // floor / kFloorPart and ceiling: the floor is for callers, who compute and are not
  // scheduled, and owners do not wait for those. `took`: from the call to when all else
  // was here.
  [[nodiscard]] Duration deadline(uint64_t bytes, Duration took) const;

 private:
  static constexpr double kHeadRoom = 2;
  static constexpr int kLeastPart = 4;
  static constexpr int kFloorPart = 2;
  PolicyOptions options_;
  std::array<std::unique_ptr<Window>, 32> lags_;  // by size class
};

}  // namespace aikido::straggler

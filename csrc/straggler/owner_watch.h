// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Time limit for a missing result: how long the result of one owner may be missing
// after those of all other owners. It is adaptive, like the deadline of a contribution
// (our design). It is made from the lags of the last results in recent operations. It
// is never longer than everything else took in this operation: otherwise an owner that
// is slow from the first operation on would become the measure. It is not shorter than
// a part of that time, because links are not equally fast in every operation, and
// moving shards away from a healthy owner costs more than waiting. One thread, no
// clock.

#include <array>

#include "straggler/history.h"
#include "straggler/policy.h"

namespace aikido::straggler {

class OwnerWatch {
 public:
  // Requires: validated options.
  explicit OwnerWatch(const PolicyOptions& options) : options_(options) {}

  // The last result of another owner, of shards of `bytes`, came `lag` after everything
  // else had arrived; 0 if something of the own rank came last.
  void on_lag(uint64_t bytes, Duration lag);
  // kHeadRoom * slack times the 19th of 20 lags, and at least took / kLeastPart. The
  // result is `took` if that is shorter, or if fewer than warmup_operations lags are
  // known. It lies between floor / kFloorPart and ceiling: the floor is made for
  // callers, which compute and may not be scheduled, and owners do not wait for those.
  // `took`: time from the call until everything else had arrived.
  [[nodiscard]] Duration deadline(uint64_t bytes, Duration took) const;

 private:
  static constexpr double kHeadRoom = 2;
  static constexpr int kLeastPart = 4;
  static constexpr int kFloorPart = 2;
  PolicyOptions options_;
  std::array<std::unique_ptr<DurationWindow>, 32> lags_;  // by size class
};

}  // namespace aikido::straggler

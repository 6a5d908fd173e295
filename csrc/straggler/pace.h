// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Whether bytes that are waited for come in time, or too slowly to be worth the rest of
// the wait (our design). What comes of them in the second quarter of it shows how fast
// their link is now; if at that rate the rest is not here `slack` times the wait after
// it began, its second half is lost, and else it is worth to wait as long. Of what
// nothing is here this says nothing, nor does a look that came late: then this rank has
// not read what is here. Pure; one thread.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace aikido::straggler {

class Pace {
 public:
  // How much is here, by source; nothing: that is not known.
  using Progress = std::vector<std::optional<uint64_t>>;
  enum class Finding : uint8_t { kNothing, kInTime, kTooSlow };
  // What has fewer bytes is over before anything can be said of it.
  static constexpr uint64_t kLeastBytes = 32 << 10;

  // No look at a wait that is shorter. What stands still may count as too slow, or say
  // nothing: a process that stands still for a moment catches up, while a slow link
  // goes on bringing a little.
  enum class Standstill { kSaysNothing, kIsTooSlow };
  Pace(Duration least_wait, Standstill standstill)
      : least_wait_(least_wait), standstill_(standstill) {}

  // So long after the wait began, which is as long as `wait` by now. Empty: no more is
  // to be learnt of it.
  [[nodiscard]] std::optional<Duration> next_look(Duration wait) const {
    if (num_looks_ == kLooks || wait < least_wait_) return std::nullopt;
    return wait * (num_looks_ + 1) / kLookPart;
  }
  // `after` it began so much is here, of `total` bytes each. What that says of them, by
  // source; empty: nothing of any. Requires: next_look() is over.
  std::vector<Finding> look(Progress here, uint64_t total, double slack, Duration wait,
                            Duration after) {
    const Progress before = std::exchange(here_, std::move(here));
    const Duration window = after - std::exchange(looked_after_, after);
    const Duration least = wait / kLookPart / 2;
    std::vector<Finding> found;
    if (++num_looks_ < kLooks || total < kLeastBytes) return found;
    if (after > wait * kLooks / kLookPart + least || window < least) return found;
    const double left =
        slack * static_cast<double>(wait.count()) - static_cast<double>(after.count());
    for (size_t i = 0; i < std::min(before.size(), here_.size()); ++i) {
      found.push_back(Finding::kNothing);
      if (!before[i] || !here_[i]) continue;
      const uint64_t gained = *here_[i] - std::min(*before[i], *here_[i]);
      if (gained == 0 && (standstill_ == Standstill::kSaysNothing || *here_[i] == 0))
        continue;
      const double comes =
          static_cast<double>(gained) / static_cast<double>(window.count()) * left;
      found.back() = comes < static_cast<double>(total - *here_[i]) ? Finding::kTooSlow
                                                                    : Finding::kInTime;
    }
    return found;
  }

 private:
  // Looks, each after such a part of the wait more.
  static constexpr int kLooks = 2;
  static constexpr int kLookPart = 4;

  Duration least_wait_;
  Standstill standstill_;
  int num_looks_ = 0;
  Duration looked_after_{};
  Progress here_;
};

}  // namespace aikido::straggler

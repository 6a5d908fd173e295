// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Prediction for awaited bytes: will they arrive in time, or too slowly to be worth the
// rest of the wait (our design)? Pure; one thread.
//
// Note [looks during a wait]
// The bytes of the second quarter of a wait show the present rate of their link. If at
// that rate the rest does not arrive within `slack` times the wait, counted from its
// beginning, the second half of the wait would be lost. Otherwise waiting is worth that
// long. Two cases give no finding: nothing has arrived, or the look came late, and this
// rank has not yet read the bytes that are here.
//   A contribution that stands still is too slow. A result that stands still is not: a
// process that stalls for a moment catches up, while a slow link goes on bringing a few
// bytes. A result may also not have begun by then, if its uplink has contributions to
// send before. So results get another look at the end of the wait, at the bytes of its
// second half.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace aikido::straggler {

class Pace {
 public:
  // Bytes that have arrived, by source; nullopt: not known.
  using Progress = std::vector<std::optional<uint64_t>>;
  enum class Finding : uint8_t { kNothing, kInTime, kTooSlow };
  // A smaller payload has only a few chunks and is never called too slow.
  static constexpr uint64_t kLeastBytes = 32 << 10;

  enum class Of : uint8_t { kContribution, kResult };
  // There are no looks at waits that are shorter than `least_wait`.
  Pace(Of of, Duration least_wait)
      : least_wait_(least_wait), is_result_(of == Of::kResult) {}

  // Time of the next look, after the beginning of the wait, which is now `wait` long.
  // nullopt: nothing more can be learnt.
  [[nodiscard]] std::optional<Duration> next_look(Duration wait) const {
    if (num_looks_ == (is_result_ ? 3 : 2) || wait < least_wait_) return std::nullopt;
    return wait * (1 << num_looks_) / kLookPart;
  }
  // A look `after` the beginning of the wait: `here` bytes of `total` have arrived of
  // each source. Returns the findings by source; empty: none. Requires: next_look() has
  // passed.
  std::vector<Finding> look(Progress here, uint64_t total, double slack, Duration wait,
                            Duration after) {
    const Progress before = std::exchange(here_, std::move(here));
    const Duration on_time = wait * (1 << num_looks_) / kLookPart;
    const Duration window = after - std::exchange(looked_after_, after);
    const Duration least = wait / kLookPart / 2;
    std::vector<Finding> found;
    if (num_looks_++ == 0 || after > on_time + least || window < least) return found;
    const double left =
        slack * static_cast<double>(wait.count()) - static_cast<double>(after.count());
    for (size_t i = 0; i < std::min(before.size(), here_.size()); ++i) {
      found.push_back(Finding::kNothing);
      if (!before[i] || !here_[i]) continue;
      const uint64_t gained = *here_[i] - std::min(*before[i], *here_[i]);
      if (gained == 0 && (is_result_ || *here_[i] == 0)) continue;
      const double comes =
          static_cast<double>(gained) / static_cast<double>(window.count()) * left;
      if (comes >= static_cast<double>(total - *here_[i])) {
        found.back() = Finding::kInTime;
      } else if (total >= kLeastBytes) {
        found.back() = Finding::kTooSlow;
      }
    }
    return found;
  }

 private:
  // The looks are after one quarter, two quarters and four quarters of the wait.
  static constexpr int kLookPart = 4;

  Duration least_wait_;
  bool is_result_;
  int num_looks_ = 0;
  Duration looked_after_{};
  Progress here_;
};

}  // namespace aikido::straggler

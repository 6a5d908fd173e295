// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Whether bytes that are waited for come in time, or too slowly to be worth the rest of
// the wait (our design). What comes of them in the second quarter of it shows how fast
// their link is now; if at that rate the rest is not here `slack` times the wait after
// it began, its second half is lost, and else it is worth to wait as long. Of what
// nothing is here this says nothing, nor does a look that came late: then this rank has
// not read what is here.
//   A contribution that stands still is too slow. A result that does is not: a process
// that stands still for a moment catches up, while a slow link goes on bringing a
// little. Nor has it begun by then where an uplink has contributions to send before; so
// there is another look at the end of the wait, at what came in its second half. Pure;
// one thread.

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
  // What has fewer bytes is in a few chunks, and not called too slow.
  static constexpr uint64_t kLeastBytes = 32 << 10;

  enum class Of : uint8_t { kContribution, kResult };
  // No look at a wait that is shorter.
  Pace(Of of, Duration least_wait)
      : least_wait_(least_wait), is_result_(of == Of::kResult) {}

  // So long after the wait began, which is as long as `wait` by now. Empty: no more is
  // to be learnt of it.
  [[nodiscard]] std::optional<Duration> next_look(Duration wait) const {
    if (num_looks_ == (is_result_ ? 3 : 2) || wait < least_wait_) return std::nullopt;
    return wait * (1 << num_looks_) / kLookPart;
  }
  // `after` it began so much is here, of `total` bytes each. What that says of them, by
  // source; empty: nothing of any. Requires: next_look() is over.
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
  // The first look is after such a part of the wait, the next after two of them, and
  // four.
  static constexpr int kLookPart = 4;

  Duration least_wait_;
  bool is_result_;
  int num_looks_ = 0;
  Duration looked_after_{};
  Progress here_;
};

}  // namespace aikido::straggler

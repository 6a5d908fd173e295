// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Whether bytes that are waited for come, but too slowly to be worth the rest of the
// wait (our design). What comes of them in the second quarter of it shows how fast
// their link is now; if at that rate the rest is not here long after the wait is over,
// its second half is lost. Where nothing comes this says nothing: a process that stands
// still for a moment catches up, while a slow link goes on bringing a little. Nor does
// a look that came late: then this rank has not read what is here. Pure; one thread.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace aikido::straggler {

class Pace {
 public:
  // What is shorter, or has fewer bytes, is over before anything can be said of it.
  static constexpr Duration kLeastWait = std::chrono::milliseconds(8);
  static constexpr uint64_t kLeastBytes = 32 << 10;

  Pace() = default;
  // Of a wait from `since` on.
  explicit Pace(TimePoint since) : since_(since) {}

  // Empty: no more is to be learnt of this wait, which is until `due`.
  [[nodiscard]] std::optional<TimePoint> next_look(TimePoint due) const {
    if (num_looks_ == kLooks || due - since_ < kLeastWait) return std::nullopt;
    return since_ + (due - since_) * (num_looks_ + 1) / kLookPart;
  }
  // So many of `total` bytes are here, or nothing is known; they may come `slack` times
  // the wait after it began. Requires: next_look() is over.
  void look(std::optional<uint64_t> here, uint64_t total, double slack, TimePoint due,
            TimePoint now) {
    const auto before = std::exchange(here_, here);
    const Duration window = now - std::exchange(looked_at_, now);
    const Duration wait = due - since_, least = wait / kLookPart / 2;
    if (++num_looks_ < kLooks || total < kLeastBytes || !before || !here) return;
    if (now - since_ > wait * kLooks / kLookPart + least || window < least) return;
    const auto gained = static_cast<double>(*here - std::min(*before, *here));
    const double left = slack * static_cast<double>(wait.count()) -
                        static_cast<double>((now - since_).count());
    const double comes = gained / static_cast<double>(window.count()) * left;
    is_too_slow_ = gained > 0 && comes < static_cast<double>(total - *here);
  }
  bool is_too_slow() const { return is_too_slow_; }

 private:
  // Looks, each after such a part of the wait more.
  static constexpr int kLooks = 2;
  static constexpr int kLookPart = 4;

  TimePoint since_{};
  int num_looks_ = 0;
  TimePoint looked_at_{};
  std::optional<uint64_t> here_;
  bool is_too_slow_ = false;
};

}  // namespace aikido::straggler

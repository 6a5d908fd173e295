// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Calls of one member for an agreement on the members, and the agreement that it takes.
// Pure: takes events and `now`. One thread.

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "membership/view.h"

namespace aikido::membership {

class AgreementCalls {
 public:
  // An agreement is not proposed before so much time has passed without a call or a
  // loss. Processes that are killed together are lost within this time.
  static constexpr Duration kQuiet = std::chrono::milliseconds(20);

  // Returns true if a new agreement is wanted: take() has returned that of `view`.
  bool call(const View& view, TimePoint now) {
    if (view.agreed.number > taken_) return false;
    is_wanted_ = true;
    quiet_at_ = now + kQuiet;
    return true;
  }
  void note_loss(TimePoint now) { quiet_at_ = now + kQuiet; }
  void on_view(const View& view) {
    if (view.agreed.number > taken_) is_wanted_ = false;
  }
  // The member does not wait for the agreement any more.
  void give_up() { is_wanted_ = false; }

  // True if the next view is to be a new agreement, proposed at quiet_at() or later.
  bool is_wanted() const { return is_wanted_; }
  TimePoint quiet_at() const { return quiet_at_; }
  // The newest agreement, once; nullopt: there is none since the last one returned.
  std::optional<Agreement> take(const View& view) {
    if (view.agreed.number <= taken_) return std::nullopt;
    taken_ = view.agreed.number;
    return view.agreed;
  }

 private:
  uint32_t taken_ = 0;  // number of the last agreement that was taken
  bool is_wanted_ = false;
  TimePoint quiet_at_{};
};

}  // namespace aikido::membership

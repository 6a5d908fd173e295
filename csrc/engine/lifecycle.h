// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// End of a group for the local member: the first reason for it, and the orderly leave.
// One thread.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"

namespace aikido::engine {

// Phases of a group, and their transitions (-: no change):
//
//              end()      begin_leaving()
//   kOpen      kEnded     kLeaving
//   kEnded     -          kLeft
//   kLeaving   kLeft      -
//   kLeft      -          -
//
// In kEnded and kLeft all calls fail with the reason. In kLeaving and kLeft the member
// reports no lost members any more and takes no part in view changes.
enum class Phase : uint8_t { kOpen, kEnded, kLeaving, kLeft };

// Notice of another member that it gives the group up.
struct GivenUp {
  Status why;
  uint64_t spared;  // calls up to this number need nothing more of that member
};

class Lifecycle {
 public:
  Phase phase() const { return phase_; }
  bool has_ended() const { return phase_ == Phase::kEnded || phase_ == Phase::kLeft; }
  bool is_leaving() const {
    return phase_ == Phase::kLeaving || phase_ == Phase::kLeft;
  }
  // Requires: has_ended().
  const Status& reason() const { return *reason_; }
  // The reason; ok if the group has not ended.
  Status failure() const { return reason_.value_or(Status()); }

  // Returns true if `why` is the first reason; later ones are ignored.
  bool end(const Status& why) {
    if (has_ended()) return false;
    reason_ = why;
    phase_ = phase_ == Phase::kOpen ? Phase::kEnded : Phase::kLeft;
    return true;
  }
  // Returns true in the first call.
  bool begin_leaving() {
    if (is_leaving()) return false;
    phase_ = phase_ == Phase::kOpen ? Phase::kLeaving : Phase::kLeft;
    return true;
  }

  // Notices take effect at the group's next look (Note [giving a group up] in
  // group_ends.cpp).
  void note(GivenUp notice) { notices_.push_back(std::move(notice)); }
  bool has_notices() const { return !notices_.empty(); }
  std::vector<GivenUp> take_notices() { return std::exchange(notices_, {}); }

 private:
  Phase phase_ = Phase::kOpen;
  std::optional<Status> reason_;
  std::vector<GivenUp> notices_;
};

}  // namespace aikido::engine

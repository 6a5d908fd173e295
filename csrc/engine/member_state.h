// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace aikido::engine {

// Member state in the view of skippable calls.
//
//   kMember --excluded--> kReturning --next view--> kMember
//   kReturning --refused--> kRefused --skip_through()--> kReturning
//   any state --half of the view lost--> kEnded
enum class MemberState : uint8_t {
  kMember,
  kReturning,  // excluded; has asked to rejoin
  kRefused,    // excluded; rejoins only after skip_through()
  kEnded,      // excluded for good: half of the view is lost
};

// Facts about a member in addition to the view.
struct Past {
  bool was_member = true;
  uint64_t return_floor = 0;  // while excluded: has all results up to here
  TimePoint out_since{};      // time of the last exclusion
};

}  // namespace aikido::engine

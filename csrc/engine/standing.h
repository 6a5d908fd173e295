// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace aikido::engine {

// Of a member, in the view of calls that may skip.
enum class Standing : uint8_t {
  kMember,
  kReturning,  // out of the view; asks to be taken in
  kRefused,    // out, and comes back by pass_over() only
  kEnded,      // out for good: half of the view is lost, so nobody can take it in
};

// What a member means to the view, besides what the view says itself.
struct Past {
  bool was_member = true;
  uint64_t return_floor = 0;  // while it is out: everything up to here it has
  TimePoint out_since{};      // the last time that it went out
};

}  // namespace aikido::engine

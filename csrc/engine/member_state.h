// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once

#include <cstdint>

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

}  // namespace aikido::engine

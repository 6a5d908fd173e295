// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once

#include <cstdint>

namespace aikido::engine {

// Of a member, in the view of calls that may skip.
enum class Standing : uint8_t {
  kMember,
  kReturning,  // out of the view; asks to be taken in
  kRefused,    // out, and comes back by pass_over() only
};

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Numbers of collectives up to which something holds for the local member of a
// group. They never shrink, except `acked` when an excluded member copies an
// older state.

#include <cstdint>

namespace aikido::engine {

// Invariants: announced <= called, and last_partial <= called. `acked` may
// exceed `called`, because a result can arrive before the local call.
struct Watermarks {
  uint64_t called = 0;        // last call
  uint64_t announced = 0;     // last call announced to the other members
  uint64_t last_partial = 0;  // last skippable call
  uint64_t acked = 0;         // no result up to this number is needed
};

}  // namespace aikido::engine

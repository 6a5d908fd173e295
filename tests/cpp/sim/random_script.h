// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Random script of a seed: members, operations, call times, and events of the network
// and of the processes. Pure.

#include <cstdint>

#include "sim/script.h"

namespace aikido::sim {

// `members` 0: 2 to 8 members, by the seed. The same arguments give the same script.
Script random_script(uint64_t seed, int32_t members);

}  // namespace aikido::sim

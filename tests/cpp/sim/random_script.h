// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A schedule for every seed: members, operations, who calls when, and what the network
// and the processes do meanwhile. Pure.

#include <cstdint>

#include "sim/script.h"

namespace aikido::sim {

// `members` 0: 2 to 8, by the seed. The same arguments give the same script.
Script random_script(uint64_t seed, int32_t members);

}  // namespace aikido::sim

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What an operation costs in messages and bytes, counted from runs of real groups.

#include <ostream>

namespace aikido::sim {

// A table for 8, 64 and 512 members, up to `max_members`.
void print_cost(int max_members, std::ostream& out);

}  // namespace aikido::sim

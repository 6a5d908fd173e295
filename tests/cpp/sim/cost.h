// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Cost of an operation in messages and bytes, counted in runs of real groups.

#include <ostream>

namespace aikido::sim {

// Prints a table for 8, 64 and 512 members, up to `max_members`.
void print_cost(int max_members, std::ostream& out);

}  // namespace aikido::sim

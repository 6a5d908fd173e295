// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Is every mutation noticed? Runs scripts and seeds with each of them switched on.

#include <ostream>
#include <string>
#include <vector>

#include "base/mutation.h"
#include "sim/simulation.h"

namespace aikido::sim {

struct NamedScript {
  std::string name;
  Script script;
};

// Prints a line for each mutation: what noticed it, and what was broken. Returns
// whether each of them is found within the scripts and `num_seeds` seeds.
bool hunt_mutations(const std::vector<NamedScript>& scripts, uint64_t num_seeds,
                    const Options& options, std::ostream& out);

}  // namespace aikido::sim

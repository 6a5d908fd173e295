// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Search for mutations that no check notices: runs scripts and seeds with each
// mutation.

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

// Prints for each mutation the script or seed that noticed it, and the broken
// guarantee. Returns true if the scripts and `num_seeds` seeds notice all mutations.
bool hunt_mutations(const std::vector<NamedScript>& scripts, uint64_t num_seeds,
                    const Options& options, std::ostream& out);

}  // namespace aikido::sim

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Shrinks a failing script until a person can read it. It drops every part that the
// failure does not need.

#include "sim/simulation.h"

namespace aikido::sim {

// Returns a script that breaks the same guarantee (S1, S2, ...) as `script`. Runs at
// most `max_runs` scripts.
Script shrink(const Script& script, const Options& options, int max_runs);

}  // namespace aikido::sim

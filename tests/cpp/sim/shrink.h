// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Makes a failing script small enough to be read: drops whatever it fails without.

#include "sim/simulation.h"

namespace aikido::sim {

// A script that breaks the same promise (S1, S2, ...) as `script` does. Runs it at most
// `max_runs` times.
Script shrink(const Script& script, const Options& options, int max_runs);

}  // namespace aikido::sim

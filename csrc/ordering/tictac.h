// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// TIC and TAC: orders of parameter transfers that keep computing from waiting (TicTac,
// MLSys 2019; properties.h has the properties). Pure; any thread.
//
// Note [the least transfer]
// TAC repeatedly takes the least outstanding transfer, where
//
//   a before b  if  min(P_b, M_a) < min(P_a, M_b),  and if both are equal, M+_a < M+_b
//
// (the paper's section on TAC; it is Johnson's rule for two machines, Naval Research
// Logistics Quarterly 1, 1954). This is no strict weak order, for two reasons. Equality
// of the minima is not transitive: with M, P of a = 1, 2; b = 1, 1; c = 2, 1, b ties
// with both, but a is before c. So M+ can close a cycle: with M+ of 3, 2, 1 for a, b, c
// the rule says a before c before b before a, and no transfer is the least. The
// published code sorts by the rule anyway, so its result depends on the initial order
// of the transfers.
//
// The first part alone never forms a cycle. It agrees with this order: the transfers
// with M < P by M, then those with M = P, then the others by P, largest first. So there
// are always transfers that no other beats by the first part, and any two of them tie.
// Among these the code takes the least M+, then the transfer whose first user is first
// in the program, then the first of the list. If the rule has a least transfer, it is
// this one, because no transfer beats it and its M+ is the least among the ties.

#include <cstddef>
#include <vector>

#include "ordering/graph.h"
#include "ordering/properties.h"

namespace aikido::ordering {

struct Placed {
  size_t op = 0;     // index of a transfer
  size_t place = 0;  // 0 is first; transfers with equal places may go in any order
  friend bool operator==(const Placed&, const Placed&) = default;
};

// Timing-Independent Communication scheduling: ascending M+ with the general time
// oracle and all transfers outstanding. Transfers with equal M+ share the place of the
// first of them, as in the published code. They are listed in the order of their first
// users, which the paper leaves open. Otherwise the second parameter of a chain could
// come before the first, because both have M+ = 2. Requires: `graph` is valid.
std::vector<Placed> tic(const Graph& graph);

// Timing-Aware Communication scheduling, by the note above. Requires: `graph` is valid
// and has measured times.
std::vector<Placed> tac(const Graph& graph);

// The ops of a result, in order.
std::vector<size_t> ops_of(const std::vector<Placed>& placed);

// The published rule: whether a is before b.
bool is_before(const Properties& a, const Properties& b);

}  // namespace aikido::ordering

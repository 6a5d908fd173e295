// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// TIC and TAC: in which order parameters are transferred, so that computing waits
// little for them (TicTac, MLSys 2019; properties.h has its properties). Pure; any
// thread.
//
// Note [the least transfer]
// TAC takes the least outstanding transfer again and again, where
//
//   a before b  if  min(P_b, M_a) < min(P_a, M_b),  and where both are equal, M+_a <
//   M+_b
//
// (the paper's section on TAC; it is Johnson's rule for two machines, Naval Research
// Logistics Quarterly 1, 1954). This is no strict weak order, for two reasons. That
// both minima are equal is not transitive: with M, P of a = 1, 2; b = 1, 1; c = 2, 1, b
// ties with both, and a is before c. And so M+ can close a cycle: with M+ of 3, 2, 1
// for a, b, c the rule says a before c before b before a, and no transfer is the least.
// The published code sorts by it all the same, so that its result depends on the order
// in which it found the transfers.
//
// The first part alone never makes a cycle: it agrees with the order that has those
// with M < P first, by M, then those with M = P, then the others, by P from the largest
// down. So there are always transfers that no other beats by the first part, and two of
// them tie. Of these we take the one with the least M+, then the one whose first user
// is first in the program, then the first of the list. Wherever the rule has a least
// transfer, this is it: it is beaten by none, so among them, and has the least M+
// there.

#include <cstddef>
#include <vector>

#include "ordering/graph.h"
#include "ordering/properties.h"

namespace aikido::ordering {

struct Placed {
  size_t op = 0;     // index of a transfer
  size_t place = 0;  // 0 first; transfers that share one may go in any order
  friend bool operator==(const Placed&, const Placed&) = default;
};

// Timing-Independent Communication scheduling: ascending M+ with the general time
// oracle and all transfers outstanding. Transfers with equal M+ have the place of
// the first of them, as in the published code. They are listed in the order of their
// first users, where the paper leaves it open: without that it could have the second
// parameter of a chain before the first, whose M+ are both 2. `graph` is valid.
std::vector<Placed> tic(const Graph& graph);

// Timing-Aware Communication scheduling, by the note above. `graph` is valid and has
// measured times.
std::vector<Placed> tac(const Graph& graph);

// The ops of either, in order.
std::vector<size_t> ops_of(const std::vector<Placed>& placed);

// The published rule: whether a is before b.
bool is_before(const Properties& a, const Properties& b);

}  // namespace aikido::ordering

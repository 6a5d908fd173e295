// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Whether the members that have answered a view change can go on by themselves. Pure:
// follows from the view that is to change and what they say.

#include <map>

#include "membership/view_message.h"

namespace aikido::membership {

// Who counts as one that could make a result: all that take part in its operation, or
// only those of them that lack it. Who has had it makes no other.
enum class Makers { kParticipants, kLacking };

// With those that have answered alone, what one of them waits for could not end: no
// one of them can send the result, and too few would make it (of two that have lost
// each other one), or it waits in vain (next_view.h) and the others alone are no
// majority. Requires: all from members of `view`.
bool is_scarce(const View& view, const std::map<Rank, Report>& answers, Makers makers);

}  // namespace aikido::membership

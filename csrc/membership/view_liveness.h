// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Check if the members that have answered a view change can go on by themselves. Pure:
// depends on the present view and the reports only.

#include <map>

#include "membership/view_message.h"

namespace aikido::membership {

// Members that can still compute a result: all participants of the operation, or only
// participants that have not received it. A member that has received a result computes
// no other.
enum class Makers { kParticipants, kLacking };

// True if an open call of one of these members could not end with these members alone.
// That is so if no member can send the result and too few can compute it, where of two
// members that have lost each other only one counts. It is also so if the member waits
// in vain (next_view.h) and the others alone are no majority. Requires: all reports are
// from members of `view`.
bool would_block(const View& view, const std::map<Rank, Report>& answers,
                 Makers makers);

}  // namespace aikido::membership

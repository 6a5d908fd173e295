// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Error messages for failed calls of a group. Pure; any thread.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "collectives/call.h"

namespace aikido::engine {

// The connection to `rank` broke for the reason `why`.
Status lost_member(Rank rank, const std::string& group, const Status& why);
// `rank` has said goodbye.
Status left_member(Rank rank, const std::string& group);
// The connection to `rank` is up, but nothing has come from it since `since`.
Status silent_member(Rank rank, const std::string& group, Duration since);

// Two members have made different calls with the same number.
Status mismatch(uint64_t seq, const std::string& group, const collectives::Call& call,
                Rank caller, const collectives::Call& other, Rank other_caller);
// `why` was found after some members had ended that call.
Status found_too_late(const Status& why, const std::string& group);

// The memory of `self` is too small for the contributions of others to a call.
Status no_memory(uint64_t seq, const std::string& group, const collectives::Call& call,
                 Rank self);

// `missing`: the members that the call waits for, and the last call of each that is
// known on this member.
Status timed_out(uint64_t seq, const std::string& group, const collectives::Call& call,
                 Rank self, Duration after,
                 const std::vector<std::pair<Rank, uint64_t>>& missing);

}  // namespace aikido::engine

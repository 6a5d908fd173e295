// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The sentences by which a group tells its callers why a call failed. Pure; any thread.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "collectives/call.h"

namespace aikido::engine {

// Its connection broke for the reason `why`.
Status lost_member(Rank rank, const std::string& group, const Status& why);
// It said goodbye.
Status left_member(Rank rank, const std::string& group);
// Its connection lives, and it says nothing.
Status silent_member(Rank rank, const std::string& group, Duration since);

// Two members that made different calls under the same number.
Status mismatch(uint64_t seq, const std::string& group, const collectives::Call& call,
                Rank caller, const collectives::Call& other, Rank other_caller);
// `why` was found when some members were through with that call.
Status found_too_late(const Status& why, const std::string& group);

// What others send for a call does not fit into the memory of `self`.
Status no_memory(uint64_t seq, const std::string& group, const collectives::Call& call,
                 Rank self);

// `missing`: who is waited for, and the last call of each that is known here.
Status timed_out(uint64_t seq, const std::string& group, const collectives::Call& call,
                 Rank self, Duration after,
                 const std::vector<std::pair<Rank, uint64_t>>& missing);

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Checks of received frames for a collective: is the frame possible in this group, and
// is there memory for it? Progress thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "collectives/call.h"
#include "collectives/operation.h"

namespace aikido::engine {

// Empty if there is no extension, because only the first frame of a message has one.
// kProtocol: the extension is no call, a group of `size` cannot make the call, or the
// call has more than `most_bytes`.
Result<std::optional<collectives::DecodedCall>> read_call(
    std::span<const std::byte> extension, int32_t size, uint64_t most_bytes);

// As Operation::place; also returns a failure if there is no memory.
Result<std::byte*> place_frame(collectives::Operation& operation, Rank from,
                               const transport::FrameHeader& header,
                               std::span<const std::byte> rest,
                               const std::string& group, Rank self);

// As Operation::start; also returns a failure if there is no memory.
Status start_call(collectives::Operation& operation, collectives::LocalCall local,
                  const std::string& group, Rank self);

// Error for a frame of collective `seq` that is impossible while only `called`
// collectives are called here.
Status too_far_ahead(uint64_t seq, uint64_t called);

}  // namespace aikido::engine

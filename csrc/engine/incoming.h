// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What comes from others for a collective: whether it is something that a member of
// this group can mean, and whether there is memory for it. Progress thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "collectives/call.h"
#include "collectives/operation.h"

namespace aikido::engine {

// Empty where there is no extension: only the first frame of a message has one.
// kProtocol: no call, none that a group of `size` can make, or of more than
// `most_bytes`.
Result<std::optional<collectives::DecodedCall>> read_call(
    std::span<const std::byte> extension, int32_t size, uint64_t most_bytes);

// As Operation::place; also a failed Status when there is no memory.
Result<std::byte*> place_frame(collectives::Operation& operation, Rank from,
                               const transport::FrameHeader& header,
                               std::span<const std::byte> rest,
                               const std::string& group, Rank self);

// As Operation::start; also a failed Status when there is no memory.
Status start_call(collectives::Operation& operation, collectives::LocalCall local,
                  const std::string& group, Rank self);

// A frame that nobody can mean: collective `seq`, while `called` are called here.
Status too_far_ahead(uint64_t seq, uint64_t called);

}  // namespace aikido::engine

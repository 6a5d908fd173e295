// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Tokens of the messages of a skippable allreduce. The operation learns by the token
// which message has left. Plain values.
//
//   - kContributionToken: whole contribution
//   - kFirstResultToken + s n + r: piece of the result of shard s to rank r, of n
//   - kFirstPieceToken + s: piece of a paced contribution to shard s
//   - 0: any other message

#include <cstdint>

namespace aikido::collectives {

inline constexpr uint32_t kContributionToken = 1;
inline constexpr uint32_t kFirstResultToken = 2;
inline constexpr uint32_t kFirstPieceToken = 1u << 31;

}  // namespace aikido::collectives

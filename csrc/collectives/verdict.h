// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What the owner of a shard says with its result: who is in it, and why it did not wait
// for the others. PROTOCOL.md has the bytes. Pure; any thread.

#include <cstddef>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/status.h"
#include "straggler/decision.h"

namespace aikido::collectives {

struct Verdict {
  RankSet mask;
  straggler::Reason reason = straggler::Reason::kComplete;
  Duration deadline{};  // whole microseconds on the wire
};

std::vector<std::byte> encode_verdict(const Verdict& verdict);
// kProtocol with a sentence when the bytes are none of a group of `size`.
Result<Verdict> decode_verdict(std::span<const std::byte> bytes, int32_t size);

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What a member asked for, in a form that all members can compare: it travels with the
// first frame of every message, so that two ranks in different calls are told so
// instead of mixing their data. Pure; any thread.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "straggler/policy.h"

namespace aikido::collectives {

enum class CallKind : uint8_t { kAllreduce = 1, kBarrier, kBroadcast, kAllgather };

// The name a PyTorch user knows: "all_reduce".
const char* name_of(CallKind kind);

struct Call {
  CallKind kind = CallKind::kAllreduce;
  DType dtype = DType::kUint8;
  ReduceOp op = ReduceOp::kSum;  // allreduce only
  Rank root = kNoRank;           // broadcast only
  uint64_t count = 0;            // elements of one member's tensor
  straggler::PolicyOptions policy;

  uint64_t bytes() const { return count * size_of(dtype); }
  // May a member be left out of it?
  bool is_partial() const { return policy.kind != straggler::Kind::kWaitAll; }

  friend bool operator==(const Call& a, const Call& b);
};

// "all_reduce(sum, float32[1024]) with SkipStraggler(...)".
std::string describe(const Call& call);

// kInvalidArgument or kUnsupported with a sentence when no group of `size` members can
// do it: an op that the dtype does not have, a root outside the group, a policy out of
// its range, or one that skips where skipping is not defined.
Status validate(const Call& call, int32_t size);

// Members of a group whose calls may skip: the mask must fit into the first frame.
inline constexpr int32_t kMaxPartialSize = 1024;
// 16 bytes, and 40 more for a policy other than WaitAll.
inline constexpr size_t kMaxCallBytes = 16 + straggler::kEncodedPolicyBytes;
std::vector<std::byte> encode(const Call& call);
// Reads a call from the front of `bytes`; what follows a call with a policy is the
// operation's own. kProtocol when the bytes are no call.
Result<Call> decode_call(std::span<const std::byte> bytes);

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What a member asked for, in a form that all members can compare: it travels with the
// first frame of every message, so that two ranks in different calls are told so
// instead of mixing their data. Pure; any thread.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "straggler/policy.h"

namespace aikido::collectives {

enum class CallKind : uint8_t {
  kAllreduce = 1,
  kBarrier,
  kBroadcast,
  kAllgather,
  kReduce,
  kReduceScatter,
  kGather,
  kScatter,
  kAlltoall,
  kMonitoredBarrier,
  kSparseAllreduce,
};

// The name a PyTorch user knows: "all_reduce".
const char* name_of(CallKind kind);
// The call folds several contributions with an op.
constexpr bool is_reduction(CallKind kind) {
  return kind == CallKind::kAllreduce || kind == CallKind::kReduce ||
         kind == CallKind::kReduceScatter || kind == CallKind::kSparseAllreduce;
}
// One member has a part of its own in the call.
constexpr bool has_root(CallKind kind) {
  return kind == CallKind::kBroadcast || kind == CallKind::kReduce ||
         kind == CallKind::kGather || kind == CallKind::kScatter;
}

// Shape of a tensor: at most kMaxDims sizes, of which the last stands for all that
// follow it. A single element has the shape [1], whatever its dimensions are.
struct Shape {
  static constexpr size_t kMaxDims = 6;
  uint8_t num_dims = 0;
  std::array<uint64_t, kMaxDims> dims{};

  static Shape of(std::span<const int64_t> sizes);
  friend bool operator==(const Shape&, const Shape&) = default;
};

struct Call {
  CallKind kind = CallKind::kAllreduce;
  DType dtype = DType::kUint8;
  ReduceOp op = ReduceOp::kSum;  // reductions only
  Rank root = kNoRank;           // where has_root() only
  // Elements of one member's tensor; of all blocks together for a reduce_scatter; 0
  // where members may differ (alltoall).
  uint64_t count = 0;
  Shape shape;  // of that tensor; none where members may differ
  Algorithm algorithm = Algorithm::kDirect;  // others: of a strict all_reduce only
  // The data goes from device to device, past the engine; here the members only compare
  // what they call, and hear that all have called. Of strict calls only.
  bool is_inner = false;
  straggler::PolicyOptions policy;

  uint64_t bytes() const { return count * size_of(dtype); }
  // Goes by the view (PartialAllreduce): may leave a member out, or moves its shards.
  bool is_partial() const { return policy.uses_view(); }
  // May leave a member out, and all members get the same result: they agree on it, and
  // may need it from each other.
  bool is_agreed() const { return is_partial() && kind == CallKind::kAllreduce; }

  friend bool operator==(const Call& a, const Call& b);
};

// What a sum of so many contributions in a group of `members` is multiplied by. With
// divisor contributors a mean is over those who are in it, and a sum is scaled up to
// what it would be if the missing were like them; with divisor world the missing count
// as zeros. Where some are backups, what is there or missing are data shards.
double scale_of(const Call& call, int32_t contributors, int32_t members);

// "all_reduce(sum, float32[1024]) with SkipStraggler(...)", "... by ring".
std::string describe(const Call& call);

// kInvalidArgument or kUnsupported with a sentence when no group of `size` members can
// do it: an op that the dtype does not have, a root outside the group, a policy out of
// its range, an algorithm that is for others, or one that skips where skipping is not
// defined.
Status validate(const Call& call, int32_t size);

// Members of a group whose calls may skip: the mask must fit into the first frame.
inline constexpr int32_t kMaxPartialSize = 1024;
// 16 bytes, 8 for each dimension, and 48 for a policy other than WaitAll.
inline constexpr size_t kMaxCallBytes =
    16 + 8 * Shape::kMaxDims + straggler::kEncodedPolicyBytes;

struct EncodedCall {
  std::array<std::byte, kMaxCallBytes> bytes{};
  size_t size = 0;
  std::span<const std::byte> view() const { return {bytes.data(), size}; }
};
EncodedCall encode(const Call& call);

struct DecodedCall {
  Call call;
  std::span<const std::byte> rest;  // what follows it: the operation's own
};
// Reads a call from the front of `bytes`. kProtocol when the bytes are no call.
Result<DecodedCall> decode_call(std::span<const std::byte> bytes);

}  // namespace aikido::collectives

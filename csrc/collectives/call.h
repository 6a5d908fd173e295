// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Description of a call, in a form that all members can compare. It travels with the
// first frame of every message. So two ranks that make different calls get an error,
// and their data is not mixed. Pure; any thread.

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

// Name of the call in PyTorch, such as "all_reduce".
const char* name_of(CallKind kind);
// True if the call folds several contributions with an op.
constexpr bool is_reduction(CallKind kind) {
  return kind == CallKind::kAllreduce || kind == CallKind::kReduce ||
         kind == CallKind::kReduceScatter || kind == CallKind::kSparseAllreduce;
}
// True if one member has a special part in the call.
constexpr bool has_root(CallKind kind) {
  return kind == CallKind::kBroadcast || kind == CallKind::kReduce ||
         kind == CallKind::kGather || kind == CallKind::kScatter;
}

// Shape of a tensor: at most kMaxDims sizes; the last one is the product of all further
// sizes. A single element has the shape [1] for any number of dimensions.
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
  Rank root = kNoRank;           // only if has_root()
  // Elements of one member's tensor; for a reduce_scatter, of all blocks together; 0 if
  // members may differ (alltoall).
  uint64_t count = 0;
  Shape shape;  // of that tensor; none if members may differ
  Algorithm algorithm = Algorithm::kDirect;  // others: for a strict all_reduce only
  // The data goes from device to device, outside of the engine. The members only
  // compare their calls, and learn when all have called. For strict calls only.
  bool is_inner = false;
  // A mean in which each contribution has a weight (weights.h).
  bool is_weighted = false;
  straggler::PolicyOptions policy;

  uint64_t bytes() const { return count * size_of(dtype); }
  // Uses the view (PartialAllreduce): may skip a member, or moves its shards.
  bool is_partial() const { return policy.uses_view(); }
  // May skip a member, and all members get the same result: they agree on it, and may
  // need it from each other.
  bool is_agreed() const { return is_partial() && kind == CallKind::kAllreduce; }

  friend bool operator==(const Call& a, const Call& b);
};

// Factor for a sum of `contributors` contributions in a group of `members`. With
// divisor contributors a mean is over the contributors, and a sum is scaled up as if
// the missing members were like the others. With divisor world missing members count as
// zeros. With backups the numbers are numbers of data shards.
double scale_of(const Call& call, int32_t contributors, int32_t members);

// Text such as "all_reduce(sum, float32[1024]) with SkipStraggler(...)" or "... by
// ring".
std::string describe(const Call& call);

// kInvalidArgument or kUnsupported with a sentence if no group of `size` members can
// make the call. The dtype lacks the op, the root is outside the group, the policy is
// out of its range, the algorithm is for other calls, or the call cannot skip.
Status validate(const Call& call, int32_t size);

// Largest group whose calls may skip: the mask must fit into the first frame.
inline constexpr int32_t kMaxPartialSize = 1024;
// The same for weighted calls, with the sum of the weights behind the mask.
inline constexpr int32_t kMaxWeightedPartialSize = kMaxPartialSize - 64;
// 16 bytes, 8 bytes for each dimension, and 48 bytes for a policy other than WaitAll.
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
  std::span<const std::byte> rest;  // bytes behind the call, for the operation
};
// Reads a call from the front of `bytes`. kProtocol if the bytes are no call.
Result<DecodedCall> decode_call(std::span<const std::byte> bytes);

}  // namespace aikido::collectives

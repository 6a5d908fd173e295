// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/call.h"

#include <cstring>

#include "base/check.h"
#include "kernels/reduce.h"

namespace aikido::collectives {

const char* name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kAllreduce:
      return "all_reduce";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kAllgather:
      return "all_gather";
    case CallKind::kReduce:
      return "reduce";
    case CallKind::kReduceScatter:
      return "reduce_scatter";
    case CallKind::kGather:
      return "gather";
    case CallKind::kScatter:
      return "scatter";
    case CallKind::kAlltoall:
      return "all_to_all";
    case CallKind::kMonitoredBarrier:
      return "monitored_barrier";
    case CallKind::kSparseAllreduce:
      return "sparse all_reduce";
  }
  return "unknown call";
}

Shape Shape::of(std::span<const int64_t> sizes) {
  Shape shape;
  uint64_t count = 1;
  for (const int64_t size : sizes) count *= static_cast<uint64_t>(size);
  // A scalar and a tensor of one element count as the same shape.
  if (count == 1) {
    shape.num_dims = 1;
    shape.dims[0] = 1;
    return shape;
  }
  for (const int64_t size : sizes) {
    const auto n = static_cast<uint64_t>(size);
    if (shape.num_dims < kMaxDims) {
      shape.dims[shape.num_dims++] = n;
    } else {
      // More than kMaxDims dimensions: the last entry is the product of the rest.
      shape.dims[kMaxDims - 1] *= n;
    }
  }
  return shape;
}

bool operator==(const Call& a, const Call& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.count == b.count && a.shape == b.shape && a.algorithm == b.algorithm &&
         a.policy == b.policy && a.is_inner == b.is_inner &&
         a.is_weighted == b.is_weighted;
}

double scale_of(const Call& call, int32_t contributors, int32_t members) {
  // With backups, the mean is over the data shards and not over the members.
  const bool is_mean = call.op == ReduceOp::kAvg;
  const int32_t size = straggler::num_data_shards(call.policy, members);
  if (call.policy.divisor == straggler::Divisor::kWorld)
    return is_mean ? 1.0 / size : 1.0;
  return is_mean ? 1.0 / contributors : static_cast<double>(size) / contributors;
}

std::string describe(const Call& call) {
  std::string text = name_of(call.kind);
  if (call.kind == CallKind::kBarrier || call.kind == CallKind::kMonitoredBarrier)
    return text + "()";
  text += "(";
  if (is_reduction(call.kind)) text += concat(name_of(call.op), ", ");
  if (has_root(call.kind)) {
    const bool is_target =
        call.kind == CallKind::kReduce || call.kind == CallKind::kGather;
    text += concat(is_target ? "dst " : "src ", call.root.value, ", ");
  }
  text += name_of(call.dtype);
  if (call.shape.num_dims > 0) {
    for (size_t i = 0; i < call.shape.num_dims; ++i)
      text += concat(i == 0 ? "[" : ", ", call.shape.dims[i]);
    text += "]";
  } else if (call.kind != CallKind::kAlltoall) {
    text += concat("[", call.count, "]");
  }
  text += ")";
  if (call.algorithm != Algorithm::kDirect)
    text += concat(" by ", name_of(call.algorithm));
  if (call.is_inner) text += " directly between devices";
  if (call.is_weighted) text += " with a weight";
  if (call.is_partial())
    text += (call.is_weighted ? " and " : " with ") + straggler::to_string(call.policy);
  return text;
}

namespace {

// Reason why the call takes no weights; "" if it does.
std::string why_unweighted(const Call& call, int32_t size) {
  const bool is_kind =
      call.kind == CallKind::kAllreduce || call.kind == CallKind::kReduceScatter;
  if (!is_kind) return "only all_reduce and reduce_scatter take a weight";
  if (!is_floating(call.dtype))
    return "a weight needs a floating-point or complex tensor; convert the tensor, or "
           "leave the weight out";
  if (call.op != ReduceOp::kAvg)
    return "a weight needs op=AVG, because the result is a weighted mean; pass "
           "op=dist.ReduceOp.AVG, or leave the weight out";
  if (call.policy.backups > 0)
    return "ActiveBackup takes no weight, because a backup does not know the weight of "
           "the rank that it stands in for; use SkipStraggler, or leave the weight out";
  if (call.policy.divisor == straggler::Divisor::kWorld)
    return "divisor=\"world\" takes no weight, because the weights of missing ranks "
           "are not known; use divisor=\"contributors\", or leave the weight out";
  if (!is_by_owners(call.algorithm) || call.is_inner)
    return "calls with a weight go directly and through the host";
  if (call.is_partial() && size > kMaxWeightedPartialSize)
    return concat("the group has ", size, " ranks, and at most ",
                  kMaxWeightedPartialSize, " can skip in a call with a weight");
  return "";
}

}  // namespace

Status validate(const Call& call, int32_t size) {
  const auto refuse = [&](Code code, const std::string& what) {
    return Status(code, concat(describe(call), ": ", what));
  };
  if (is_reduction(call.kind) && kernels::find_reduce(call.op, call.dtype) == nullptr) {
    return refuse(Code::kUnsupported, concat(name_of(call.op), " is not defined for ",
                                             name_of(call.dtype)));
  }
  if (has_root(call.kind) && (call.root.value < 0 || call.root.value >= size)) {
    return refuse(Code::kInvalidArgument,
                  concat("the root is none of the ", size, " ranks"));
  }
  if (call.is_weighted) {
    if (const std::string why = why_unweighted(call, size); !why.empty())
      return refuse(Code::kInvalidArgument, why);
  }
  const bool can_take_hops = call.kind == CallKind::kAllreduce && !call.is_partial();
  // Other algorithms combine sums on the way, so they cannot leave out one
  // contribution.
  if (!is_by_owners(call.algorithm) && !can_take_hops) {
    return refuse(Code::kUnsupported,
                  "only an all_reduce that waits for all ranks goes another way than "
                  "direct");
  }
  if (!call.is_partial()) return Status::ok();
  if (call.is_inner)
    return refuse(Code::kUnsupported, "the inner backend leaves no rank out");
  const bool is_sum = call.op == ReduceOp::kSum || call.op == ReduceOp::kAvg;
  const bool can_skip =
      call.kind == CallKind::kAllreduce || call.kind == CallKind::kReduceScatter;
  if (!can_skip) {
    return refuse(Code::kUnsupported,
                  "only all_reduce and reduce_scatter may leave a rank out");
  }
  const bool may_skip = call.policy.kind != straggler::Kind::kWaitAll;
  if (!may_skip && call.kind != CallKind::kAllreduce)
    return refuse(Code::kUnsupported, "WaitAll(rebalance=True) is for all_reduce only");
  if (call.policy.backups > 0 && call.kind != CallKind::kAllreduce)
    return refuse(Code::kUnsupported, "ActiveBackup is for all_reduce only");
  if (may_skip && (!is_sum || !is_floating(call.dtype))) {
    // A sum without some contributions may be scaled, which needs floating point.
    return refuse(Code::kUnsupported,
                  "only sums and means of floating point may leave a rank out");
  }
  if (size > kMaxPartialSize) {
    return refuse(Code::kUnsupported, concat("the group has ", size, " ranks, and at ",
                                             "most ", kMaxPartialSize, " can skip"));
  }
  return straggler::validate(call.policy, size);
}

namespace {

// Layout of an encoded call: kind, dtype, op and kIsWeighted, one byte for four things
// (number of dimensions, kIsInner, algorithm, kHasPolicy), root, count. Dimensions and
// policy follow.
constexpr size_t kFixedBytes = 16;
constexpr uint8_t kIsWeighted = 0x80;
constexpr uint8_t kDimensions = 0x07;
constexpr uint8_t kIsInner = 0x08;
constexpr uint8_t kAlgorithm = 0x07;
constexpr uint8_t kAlgorithmShift = 4;
constexpr uint8_t kHasPolicy = 0x80;
constexpr uint8_t kMaxKind = static_cast<uint8_t>(CallKind::kSparseAllreduce);
constexpr uint64_t kMaxCount = uint64_t{1} << 48;

}  // namespace

EncodedCall encode(const Call& call) {
  EncodedCall out;
  const int flags =
      (call.is_partial() ? kHasPolicy : 0) | (call.is_inner ? kIsInner : 0);
  out.bytes[0] = static_cast<std::byte>(call.kind);
  out.bytes[1] = static_cast<std::byte>(call.dtype);
  out.bytes[2] = static_cast<std::byte>(static_cast<int>(call.op) |
                                        (call.is_weighted ? kIsWeighted : 0));
  out.bytes[3] =
      static_cast<std::byte>(call.shape.num_dims | flags |
                             static_cast<int>(call.algorithm) << kAlgorithmShift);
  std::memcpy(out.bytes.data() + 4, &call.root.value, 4);
  std::memcpy(out.bytes.data() + 8, &call.count, 8);
  out.size = kFixedBytes + 8 * size_t{call.shape.num_dims};
  std::memcpy(out.bytes.data() + kFixedBytes, call.shape.dims.data(),
              8 * size_t{call.shape.num_dims});
  if (call.is_partial()) {
    const auto policy = straggler::encode(call.policy);
    std::memcpy(out.bytes.data() + out.size, policy.data(), policy.size());
    out.size += policy.size();
  }
  return out;
}

Result<DecodedCall> decode_call(std::span<const std::byte> bytes) {
  if (bytes.size() < kFixedBytes)
    return Status(Code::kProtocol, "a call that is too short");
  const auto kind = static_cast<uint8_t>(bytes[0]);
  const auto dtype = static_cast<uint8_t>(bytes[1]);
  const auto op = static_cast<uint8_t>(static_cast<uint8_t>(bytes[2]) & ~kIsWeighted);
  const auto packed = static_cast<uint8_t>(bytes[3]);
  const auto num_dims = static_cast<uint8_t>(packed & kDimensions);
  const auto algorithm = packed >> kAlgorithmShift & kAlgorithm;
  const bool has_policy = (packed & kHasPolicy) != 0;
  if (kind == 0 || kind > kMaxKind || dtype >= kNumDTypes || op >= kNumReduceOps ||
      num_dims > Shape::kMaxDims || algorithm >= kNumAlgorithms) {
    return Status(
        Code::kProtocol,
        concat("a call of kind ", int{kind}, ", dtype ", int{dtype}, ", op ", int{op},
               ", ", int{num_dims}, " dimensions, algorithm ", algorithm));
  }
  DecodedCall decoded;
  Call& call = decoded.call;
  call.kind = static_cast<CallKind>(kind);
  call.dtype = static_cast<DType>(dtype);
  call.op = static_cast<ReduceOp>(op);
  call.algorithm = static_cast<Algorithm>(algorithm);
  call.is_inner = (packed & kIsInner) != 0;
  call.is_weighted = (static_cast<uint8_t>(bytes[2]) & kIsWeighted) != 0;
  std::memcpy(&call.root.value, bytes.data() + 4, 4);
  std::memcpy(&call.count, bytes.data() + 8, 8);
  // Bounded, so that products with element sizes cannot overflow.
  if (call.count > kMaxCount) {
    return Status(Code::kProtocol, concat("a call of ", call.count, " elements"));
  }
  size_t size = kFixedBytes + 8 * size_t{num_dims};
  if (bytes.size() < size + (has_policy ? straggler::kEncodedPolicyBytes : 0)) {
    return Status(Code::kProtocol, concat("a call that ends after ", bytes.size(),
                                          " bytes, before its shape or policy"));
  }
  call.shape.num_dims = num_dims;
  std::memcpy(call.shape.dims.data(), bytes.data() + kFixedBytes, 8 * size_t{num_dims});
  if (has_policy) {
    auto policy = straggler::decode_policy(
        bytes.subspan(size).first<straggler::kEncodedPolicyBytes>());
    if (!policy) return policy.status();
    call.policy = *policy;
    size += straggler::kEncodedPolicyBytes;
  }
  decoded.rest = bytes.subspan(size);
  return decoded;
}

}  // namespace aikido::collectives

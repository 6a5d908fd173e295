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
  }
  return "unknown call";
}

bool operator==(const Call& a, const Call& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.count == b.count && a.policy == b.policy;
}

std::string describe(const Call& call) {
  std::string text = name_of(call.kind);
  if (call.kind == CallKind::kBarrier) return text + "()";
  text += "(";
  if (call.kind == CallKind::kAllreduce) text += concat(name_of(call.op), ", ");
  if (call.kind == CallKind::kBroadcast) text += concat("root ", call.root.value, ", ");
  text += concat(name_of(call.dtype), "[", call.count, "])");
  if (call.is_partial()) text += " with " + straggler::to_string(call.policy);
  return text;
}

Status validate(const Call& call, int32_t size) {
  const auto refuse = [&](Code code, const std::string& what) {
    return Status(code, concat(describe(call), ": ", what));
  };
  if (call.kind == CallKind::kAllreduce &&
      kernels::find_reduce(call.op, call.dtype) == nullptr) {
    return refuse(Code::kUnsupported, concat(name_of(call.op), " is not defined for ",
                                             name_of(call.dtype)));
  }
  if (call.kind == CallKind::kBroadcast &&
      (call.root.value < 0 || call.root.value >= size)) {
    return refuse(Code::kInvalidArgument,
                  concat("the root is none of the ", size, " ranks"));
  }
  if (!call.is_partial()) return Status::ok();
  const bool is_sum = call.op == ReduceOp::kSum || call.op == ReduceOp::kAvg;
  if (call.kind != CallKind::kAllreduce || !is_sum || !is_floating(call.dtype)) {
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
// kind, dtype, op, zero, root, count; the policy follows.
constexpr size_t kFixedBytes = 16;
constexpr uint8_t kMaxKind = static_cast<uint8_t>(CallKind::kAllgather);
}  // namespace

std::vector<std::byte> encode(const Call& call) {
  std::vector<std::byte> out(kFixedBytes);
  out[0] = static_cast<std::byte>(call.kind);
  out[1] = static_cast<std::byte>(call.dtype);
  out[2] = static_cast<std::byte>(call.op);
  std::memcpy(out.data() + 4, &call.root.value, 4);
  std::memcpy(out.data() + 8, &call.count, 8);
  if (call.is_partial()) {
    const auto policy = straggler::encode(call.policy);
    out.insert(out.end(), policy.begin(), policy.end());
  }
  return out;
}

Result<Call> decode_call(std::span<const std::byte> bytes) {
  if (bytes.size() < kFixedBytes)
    return Status(Code::kProtocol, "a call that is too short");
  Call call;
  const auto kind = static_cast<uint8_t>(bytes[0]);
  const auto dtype = static_cast<uint8_t>(bytes[1]);
  const auto op = static_cast<uint8_t>(bytes[2]);
  if (kind == 0 || kind > kMaxKind || dtype >= kNumDTypes || op >= kNumReduceOps) {
    return Status(Code::kProtocol, concat("a call of kind ", int{kind}, ", dtype ",
                                          int{dtype}, ", op ", int{op}));
  }
  call.kind = static_cast<CallKind>(kind);
  call.dtype = static_cast<DType>(dtype);
  call.op = static_cast<ReduceOp>(op);
  std::memcpy(&call.root.value, bytes.data() + 4, 4);
  std::memcpy(&call.count, bytes.data() + 8, 8);
  if (call.count > (uint64_t{1} << 48)) {
    return Status(Code::kProtocol, concat("a call of ", call.count, " elements"));
  }
  if (bytes.size() > kFixedBytes) {
    if (bytes.size() < kMaxCallBytes) {
      return Status(Code::kProtocol,
                    concat("a policy of ", bytes.size() - kFixedBytes, " bytes"));
    }
    auto policy = straggler::decode_policy(
        bytes.subspan<kFixedBytes, straggler::kEncodedPolicyBytes>());
    if (!policy) return policy.status();
    call.policy = *policy;
  }
  return call;
}

}  // namespace aikido::collectives

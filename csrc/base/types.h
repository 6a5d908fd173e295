// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Words of the project as types, so that a Rank cannot be passed as a Seq and a byte
// count not as an element count. Plain values: any thread.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace aikido {

// An integer that only mixes with its own kind. `Tag` is never defined.
template <class Tag, class Rep>
struct StrongInt {
  Rep value{};
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep v) : value(v) {}
  friend constexpr auto operator<=>(StrongInt, StrongInt) = default;
};

// Index of a member inside one view (numbered set of members), 0 .. size-1.
using Rank = StrongInt<struct RankTag, int32_t>;
// Number of a collective inside its group: the first is 1. Same on every member.
using Seq = StrongInt<struct SeqTag, uint64_t>;
// Number of a view. Grows by one at each change of members.
using Epoch = StrongInt<struct EpochTag, uint64_t>;

inline constexpr Rank kNoRank{-1};

// Urgency of a transfer: higher goes first. The transport pauses a lower one between
// chunks.
using Priority = int32_t;
// Range for callers. Frames without a caller's data are outside of it.
inline constexpr Priority kMinPriority = -1000;
inline constexpr Priority kMaxPriority = 1000;

enum class DType : uint8_t {
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};
inline constexpr int kNumDTypes = 12;

enum class ReduceOp : uint8_t { kSum, kAvg, kProduct, kMin, kMax, kBand, kBor, kBxor };
inline constexpr int kNumReduceOps = 8;

// Algorithm of an allreduce between the members: collectives/README.md has the steps
// and bytes, cost/collective_cost.h the times.
enum class Algorithm : uint8_t {
  kDirect,
  kRing,
  kHalvingDoubling,
  kTree,
  kTwoLevel,
  kOneOwner
};
inline constexpr int kNumAlgorithms = 6;
// To owners and back, in two steps.
constexpr bool is_by_owners(Algorithm algorithm) {
  return algorithm == Algorithm::kDirect || algorithm == Algorithm::kOneOwner;
}

// Bytes of one element.
constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBool:
      return 1;
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
  }
  return 0;
}

constexpr bool is_complex(DType t) {
  return t == DType::kComplex64 || t == DType::kComplex128;
}
// Real or complex floating point: the dtypes of means, and so of skip policies.
constexpr bool is_floating(DType t) {
  return t == DType::kFloat16 || t == DType::kBFloat16 || t == DType::kFloat32 ||
         t == DType::kFloat64 || is_complex(t);
}

// Names as a PyTorch user writes them ("float32", "sum").
constexpr const char* name_of(DType t) {
  constexpr const char* kNames[kNumDTypes] = {
      "uint8",   "int8",     "int16",   "int32",   "int64",     "bool",
      "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};
  const auto i = static_cast<size_t>(t);
  return i < static_cast<size_t>(kNumDTypes) ? kNames[i] : "unknown dtype";
}
constexpr const char* name_of(ReduceOp op) {
  constexpr const char* kNames[kNumReduceOps] = {"sum", "avg",  "product", "min",
                                                 "max", "band", "bor",     "bxor"};
  const auto i = static_cast<size_t>(op);
  return i < static_cast<size_t>(kNumReduceOps) ? kNames[i] : "unknown op";
}
constexpr const char* name_of(Algorithm algorithm) {
  constexpr const char* kNames[kNumAlgorithms] = {
      "direct", "ring", "halving_doubling", "tree", "two_level", "one_owner"};
  const auto i = static_cast<size_t>(algorithm);
  return i < static_cast<size_t>(kNumAlgorithms) ? kNames[i] : "unknown algorithm";
}

inline std::string to_string(Rank r) {
  return "rank " + std::to_string(r.value);
}

}  // namespace aikido

template <class Tag, class Rep>
struct std::hash<aikido::StrongInt<Tag, Rep>> {
  size_t operator()(aikido::StrongInt<Tag, Rep> v) const noexcept {
    return std::hash<Rep>{}(v.value);
  }
};

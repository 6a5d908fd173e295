// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Compiled with --fmad=false: a fused multiply-add would give other bits than the host.
#include "cuda/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/check.h"
#include "cuda/half.cuh"

namespace aikido::cuda {
namespace {

using Byte = unsigned char;

struct Buffers {
  Byte* at[kMaxReduceSources];
};

// Element types: the type in memory (Raw), the type of the computation (Acc), and the
// scalar that scales it.
template <class T>
struct Plain {
  using Raw = T;
  using Acc = T;
  using Factor = T;
  __device__ static Acc widen(Raw raw) { return raw; }
  __device__ static Raw narrow(Acc acc) { return acc; }
};

// Mean of integers of T: the sum wraps around and is then divided, rounding towards
// zero.
template <class T>
struct Mean {
  using Raw = std::make_unsigned_t<T>;
  using Acc = Raw;
  using Factor = int64_t;  // the divisor
  __device__ static Acc widen(Raw raw) { return raw; }
  __device__ static Raw narrow(Acc acc) { return acc; }
  __device__ static Acc divide(Acc acc, Factor divisor) {
    return static_cast<Acc>(static_cast<T>(acc) / divisor);
  }
};
template <class E>
inline constexpr bool kIsMean = false;
template <class T>
inline constexpr bool kIsMean<Mean<T>> = true;

struct Truth {
  using Raw = uint8_t;
  using Acc = uint8_t;
  using Factor = uint8_t;
  __device__ static Acc widen(Raw raw) { return raw != 0 ? 1 : 0; }
  __device__ static Raw narrow(Acc acc) { return acc; }
};

struct Fp16 {
  using Raw = uint16_t;
  using Acc = float;
  using Factor = float;
  __device__ static Acc widen(Raw raw) { return fp16_to_float(raw); }
  __device__ static Raw narrow(Acc acc) { return float_to_fp16(acc); }
};

struct Bf16 {
  using Raw = uint16_t;
  using Acc = float;
  using Factor = float;
  __device__ static Acc widen(Raw raw) { return bf16_to_float(raw); }
  __device__ static Raw narrow(Acc acc) { return float_to_bf16(acc); }
};

template <class T>
struct ComplexOf {
  T re;
  T im;
  __device__ friend ComplexOf operator*(ComplexOf a, ComplexOf b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  __device__ friend ComplexOf operator*(ComplexOf a, T factor) {
    return {a.re * factor, a.im * factor};
  }
};
template <class T>
struct Complex {
  using Raw = ComplexOf<T>;
  using Acc = ComplexOf<T>;
  using Factor = T;
  __device__ static Acc widen(Raw raw) { return raw; }
  __device__ static Raw narrow(Acc acc) { return acc; }
};

// Operations. Integer elements of sum and product are unsigned.
struct Sum {
  template <class T>
  __device__ static T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Product {
  template <class T>
  __device__ static T apply(T a, T b) {
    // Two uint16_t would be promoted to int and could overflow it.
    if constexpr (sizeof(T) < sizeof(unsigned))
      return static_cast<T>(static_cast<unsigned>(a) * static_cast<unsigned>(b));
    else
      return a * b;
  }
};
struct Min {
  template <class T>
  __device__ static T apply(T a, T b) {
    return b < a || b != b ? b : a;
  }
};
struct Max {
  template <class T>
  __device__ static T apply(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct Band {
  template <class T>
  __device__ static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Bor {
  template <class T>
  __device__ static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Bxor {
  template <class T>
  __device__ static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

enum class Access { kPacks, kElements, kBytes };

// Everything a launch needs, passed by value.
template <class E>
struct Task {
  Buffers sources;  // also the targets if `out` is null
  size_t num_sources;
  Byte* out;  // null: the result goes to all sources
  size_t count;
  typename E::Factor factor;
  bool is_scaled;
  Access access;
};

template <class E>
__device__ typename E::Raw load(const Byte* from, Access access) {
  if (access != Access::kBytes) return *reinterpret_cast<const typename E::Raw*>(from);
  Byte bytes[sizeof(typename E::Raw)];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = from[i];
  typename E::Raw raw;
  memcpy(&raw, bytes, sizeof raw);
  return raw;
}

template <class E>
__device__ void store(Byte* to, typename E::Raw raw, Access access) {
  if (access != Access::kBytes) {
    *reinterpret_cast<typename E::Raw*>(to) = raw;
    return;
  }
  Byte bytes[sizeof raw];
  memcpy(bytes, &raw, sizeof raw);
  for (size_t i = 0; i < sizeof bytes; ++i) to[i] = bytes[i];
}

// `put` writes an element to each target.
template <class E, class Put>
__device__ void put_everywhere(const Task<E>& task, Put put) {
  if (task.out != nullptr) return put(task.out);
  for (size_t k = 0; k < task.num_sources; ++k) put(task.sources.at[k]);
}

template <class E>
__device__ typename E::Raw finish(const Task<E>& task, typename E::Acc acc) {
  if constexpr (std::is_floating_point_v<typename E::Factor>)
    if (task.is_scaled) acc = acc * task.factor;
  if constexpr (kIsMean<E>)
    if (task.is_scaled) acc = E::divide(acc, task.factor);
  return E::narrow(acc);
}

template <class E, class Op>
__device__ void fold_element(const Task<E>& task, size_t i) {
  const size_t at = i * sizeof(typename E::Raw);
  typename E::Acc acc = E::widen(load<E>(task.sources.at[0] + at, task.access));
  for (size_t k = 1; k < task.num_sources; ++k)
    acc = Op::apply(acc, E::widen(load<E>(task.sources.at[k] + at, task.access)));
  const typename E::Raw raw = finish(task, acc);
  put_everywhere(task, [&](Byte* to) { store<E>(to + at, raw, task.access); });
}

// Sixteen bytes of elements at once.
template <class E, class Op>
__device__ void fold_pack(const Task<E>& task, size_t pack) {
  constexpr size_t kNum = sizeof(uint4) / sizeof(typename E::Raw);
  typename E::Raw raw[kNum];
  typename E::Acc acc[kNum];
  uint4 words = reinterpret_cast<const uint4*>(task.sources.at[0])[pack];
  memcpy(raw, &words, sizeof words);
  for (size_t j = 0; j < kNum; ++j) acc[j] = E::widen(raw[j]);
  for (size_t k = 1; k < task.num_sources; ++k) {
    words = reinterpret_cast<const uint4*>(task.sources.at[k])[pack];
    memcpy(raw, &words, sizeof words);
    for (size_t j = 0; j < kNum; ++j) acc[j] = Op::apply(acc[j], E::widen(raw[j]));
  }
  for (size_t j = 0; j < kNum; ++j) raw[j] = finish(task, acc[j]);
  memcpy(&words, raw, sizeof words);
  put_everywhere(task, [&](Byte* to) { reinterpret_cast<uint4*>(to)[pack] = words; });
}

template <class E, class Op>
__global__ void reduce_kernel(const __grid_constant__ Task<E> task) {
  const size_t first = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  const size_t stride = gridDim.x * size_t{blockDim.x};
  size_t done = 0;
  if (task.access == Access::kPacks) {
    constexpr size_t kNum = sizeof(uint4) / sizeof(typename E::Raw);
    const size_t num_packs = task.count / kNum;
    for (size_t pack = first; pack < num_packs; pack += stride)
      fold_pack<E, Op>(task, pack);
    done = num_packs * kNum;
  }
  for (size_t i = done + first; i < task.count; i += stride)
    fold_element<E, Op>(task, i);
}

struct Call {
  void* out;  // null: all sources are targets
  const void* const* sources;
  size_t num_sources;
  size_t count;
  double scale;
  cudaStream_t stream;
};

template <class E>
Access find_access(const Task<E>& task) {
  uintptr_t all = reinterpret_cast<uintptr_t>(task.out);
  for (size_t k = 0; k < task.num_sources; ++k)
    all |= reinterpret_cast<uintptr_t>(task.sources.at[k]);
  if (all % sizeof(uint4) == 0) return Access::kPacks;
  return all % alignof(typename E::Raw) == 0 ? Access::kElements : Access::kBytes;
}

// `lanes` elements of E make one element of the dtype: a sum of complex numbers is a
// sum of twice as many real numbers.
template <class E, class Op>
Status launch(const Call& call, size_t lanes = 1) {
  using Raw = typename E::Raw;
  constexpr bool kIsFloating = std::is_floating_point_v<typename E::Factor>;
  if (call.count == 0) return Status::ok();
  Task<E> task{};
  task.num_sources = call.num_sources;
  for (size_t k = 0; k < call.num_sources; ++k)
    task.sources.at[k] = static_cast<Byte*>(const_cast<void*>(call.sources[k]));
  task.out = static_cast<Byte*>(call.out);
  task.count = call.count * lanes;
  task.is_scaled = kIsFloating && call.scale != 1.0;
  if (kIsFloating) task.factor = static_cast<typename E::Factor>(call.scale);
  if (kIsMean<E> && call.scale > 0.0 && call.scale < 1.0) {
    task.is_scaled = true;
    task.factor = static_cast<typename E::Factor>(1.0 / call.scale + 0.5);
  }
  task.access = find_access(task);
  const size_t bytes = task.count * sizeof(Raw);
  if (call.num_sources == 1 && !task.is_scaled && !std::is_same_v<E, Truth>) {
    if (call.out == nullptr || call.out == call.sources[0]) return Status::ok();
    return check_cuda(cudaMemcpyAsync(call.out, call.sources[0], bytes,
                                      cudaMemcpyDeviceToDevice, call.stream),
                      "cudaMemcpyAsync", bytes);
  }
  constexpr size_t kThreads = 256;
  constexpr size_t kMaxBlocks = 4096;  // with more elements, each thread takes several
  const size_t items =
      task.access == Access::kPacks ? bytes / sizeof(uint4) + 1 : task.count;
  const size_t blocks = std::min((items + kThreads - 1) / kThreads, kMaxBlocks);
  reduce_kernel<E, Op>
      <<<static_cast<unsigned>(blocks), kThreads, 0, call.stream>>>(task);
  return check_cuda(cudaGetLastError(), "launch of reduce", bytes);
}

Status undefined(ReduceOp op, DType dtype) {
  return {Code::kUnsupported, concat("reduce on the device: ", name_of(op), " of ",
                                     name_of(dtype), " is not defined")};
}

template <class T>
Status launch_integer(ReduceOp op, DType dtype, const Call& call) {
  using U = Plain<std::make_unsigned_t<T>>;
  switch (op) {
    case ReduceOp::kSum:
      return launch<U, Sum>(call);
    case ReduceOp::kProduct:
      return launch<U, Product>(call);
    case ReduceOp::kMin:
      return launch<Plain<T>, Min>(call);
    case ReduceOp::kMax:
      return launch<Plain<T>, Max>(call);
    case ReduceOp::kBand:
      return launch<U, Band>(call);
    case ReduceOp::kBor:
      return launch<U, Bor>(call);
    case ReduceOp::kBxor:
      return launch<U, Bxor>(call);
    case ReduceOp::kAvg:
      return launch<Mean<T>, Sum>(call);
  }
  return undefined(op, dtype);
}

Status launch_bool(ReduceOp op, const Call& call) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return launch<Truth, Bor>(call);
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return launch<Truth, Band>(call);
    case ReduceOp::kBxor:
      return launch<Truth, Bxor>(call);
    case ReduceOp::kAvg:
      break;
  }
  return undefined(op, DType::kBool);
}

template <class E>
Status launch_floating(ReduceOp op, DType dtype, const Call& call) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return launch<E, Sum>(call);
    case ReduceOp::kProduct:
      return launch<E, Product>(call);
    case ReduceOp::kMin:
      return launch<E, Min>(call);
    case ReduceOp::kMax:
      return launch<E, Max>(call);
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      break;
  }
  return undefined(op, dtype);
}

template <class T>
Status launch_complex(ReduceOp op, DType dtype, const Call& call) {
  if (op == ReduceOp::kSum || op == ReduceOp::kAvg)
    return launch<Plain<T>, Sum>(call, 2);
  if (op == ReduceOp::kProduct) return launch<Complex<T>, Product>(call);
  return undefined(op, dtype);
}

Status launch_any(ReduceOp op, DType dtype, const Call& call) {
  const size_t num_sources = call.num_sources;
  if (num_sources == 0)
    return {Code::kInvalidArgument, "reduce on the device: needs at least one source"};
  if (num_sources > kMaxReduceSources)
    return {Code::kUnsupported, concat("reduce on the device: ", num_sources,
                                       " sources in one call, at most ",
                                       kMaxReduceSources, " fit; reduce in two steps")};
  switch (dtype) {
    case DType::kUint8:
      return launch_integer<uint8_t>(op, dtype, call);
    case DType::kInt8:
      return launch_integer<int8_t>(op, dtype, call);
    case DType::kInt16:
      return launch_integer<int16_t>(op, dtype, call);
    case DType::kInt32:
      return launch_integer<int32_t>(op, dtype, call);
    case DType::kInt64:
      return launch_integer<int64_t>(op, dtype, call);
    case DType::kBool:
      return launch_bool(op, call);
    case DType::kFloat16:
      return launch_floating<Fp16>(op, dtype, call);
    case DType::kBFloat16:
      return launch_floating<Bf16>(op, dtype, call);
    case DType::kFloat32:
      return launch_floating<Plain<float>>(op, dtype, call);
    case DType::kFloat64:
      return launch_floating<Plain<double>>(op, dtype, call);
    case DType::kComplex64:
      return launch_complex<float>(op, dtype, call);
    case DType::kComplex128:
      return launch_complex<double>(op, dtype, call);
  }
  return undefined(op, dtype);
}

}  // namespace

Status reduce(ReduceOp op, DType dtype, void* out, const void* const* sources,
              size_t num_sources, size_t count, double scale, cudaStream_t stream) {
  return launch_any(op, dtype, {out, sources, num_sources, count, scale, stream});
}

Status reduce_to_all(ReduceOp op, DType dtype, void* const* buffers, size_t num_buffers,
                     size_t count, double scale, cudaStream_t stream) {
  return launch_any(op, dtype, {nullptr, buffers, num_buffers, count, scale, stream});
}

}  // namespace aikido::cuda

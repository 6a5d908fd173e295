// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// fp16 and bf16 to fp32 and back on the device, as csrc/kernels/half.h does it on the
// host: round to nearest even, subnormals exact, equal bits but for the payload of a
// NaN, which the device replaces by its own.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace aikido::cuda {

__device__ inline float fp16_to_float(uint16_t h) {
  return __half2float(__ushort_as_half(h));
}
__device__ inline uint16_t float_to_fp16(float f) {
  return __half_as_ushort(__float2half_rn(f));
}
__device__ inline float bf16_to_float(uint16_t h) {
  return __uint_as_float(static_cast<uint32_t>(h) << 16);
}
__device__ inline uint16_t float_to_bf16(float f) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(f));
}

}  // namespace aikido::cuda

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "kernels/weighted_sum.h"

#include <algorithm>

#include "kernels/reduce_sets.h"

namespace aikido::kernels {

WeightedSumFn find_weighted_sum(DType dtype, InstructionSet set) {
  const auto sets = available_sets();
  if (std::find(sets.begin(), sets.end(), set) == sets.end()) return nullptr;
  switch (set) {
    case InstructionSet::kPortable:
      return find_weighted_in_scalar(dtype);
#if defined(__x86_64__)
    case InstructionSet::kAvx2:
      return find_weighted_in_avx2(dtype);
    case InstructionSet::kAvx512:
      return find_weighted_in_avx512(dtype);
#elif defined(__aarch64__)
    case InstructionSet::kNeon:
      return find_weighted_in_neon(dtype);
#endif
    default:
      return nullptr;
  }
}

WeightedSumFn find_weighted_sum(DType dtype) {
  static const InstructionSet best = available_sets().back();
  return find_weighted_sum(dtype, best);
}

}  // namespace aikido::kernels

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "kernels/reduce.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/reduce_sets.h"

namespace aikido::kernels {

namespace {

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports knows the name. Asked once: in a virtual
// machine the instruction goes through the hypervisor and takes microseconds.
bool has_f16c() {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  }();
  return has;
}
#endif

bool is_available(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPortable:
      return true;
#if defined(__x86_64__)
    case InstructionSet::kAvx2:
      return __builtin_cpu_supports("avx2") && has_f16c();
    case InstructionSet::kAvx512:
      return is_available(InstructionSet::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
    case InstructionSet::kNeon:
      return false;
#elif defined(__aarch64__)
    case InstructionSet::kNeon:
      return true;
    case InstructionSet::kAvx2:
    case InstructionSet::kAvx512:
      return false;
#else
    case InstructionSet::kAvx2:
    case InstructionSet::kAvx512:
    case InstructionSet::kNeon:
      return false;
#endif
  }
  return false;
}

}  // namespace

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPortable:
      return "portable";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kNeon:
      return "neon";
  }
  return "unknown instruction set";
}

std::vector<InstructionSet> available_sets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set : {InstructionSet::kPortable, InstructionSet::kAvx2,
                                   InstructionSet::kAvx512, InstructionSet::kNeon})
    if (is_available(set)) sets.push_back(set);
  return sets;
}

ReduceFn find_reduce(ReduceOp op, DType dtype, InstructionSet set) {
  if (!is_available(set)) return nullptr;
  switch (set) {
    case InstructionSet::kPortable:
      return find_in_scalar(op, dtype);
#if defined(__x86_64__)
    case InstructionSet::kAvx2:
      return find_in_avx2(op, dtype);
    case InstructionSet::kAvx512:
      return find_in_avx512(op, dtype);
#elif defined(__aarch64__)
    case InstructionSet::kNeon:
      return find_in_neon(op, dtype);
#endif
    default:
      return nullptr;
  }
}

ReduceFn find_reduce(ReduceOp op, DType dtype) {
  static const InstructionSet best = available_sets().back();
  return find_reduce(op, dtype, best);
}

}  // namespace aikido::kernels

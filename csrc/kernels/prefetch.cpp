// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "kernels/prefetch.h"

namespace aikido::kernels {
namespace {

bool is_amd() {
#if defined(__x86_64__)
  __builtin_cpu_init();  // this may run before the library's own constructors
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

}  // namespace

bool prefetches = !is_amd();

}  // namespace aikido::kernels

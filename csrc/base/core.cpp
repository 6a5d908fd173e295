// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/core.h"

#include <sched.h>

namespace aikido {

// The kernel moves a thread at once that may not run where it is.
bool move_to_another_core() {
  cpu_set_t all;
  if (::sched_getaffinity(0, sizeof all, &all) != 0) return false;
  const int here = ::sched_getcpu();
  if (here < 0) return false;
  cpu_set_t others = all;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0) return false;
  if (::sched_setaffinity(0, sizeof others, &others) != 0) return false;
  return ::sched_setaffinity(0, sizeof all, &all) == 0;
}

}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "memory_loops_impl.h"

namespace aikido::bench {

std::vector<MemoryLoop> memory_loops_portable() {
  return loops_here();
}

}  // namespace aikido::bench

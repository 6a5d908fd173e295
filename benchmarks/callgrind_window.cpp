// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Switch of callgrind in this process. It counts all threads from start() to stop().
#include <valgrind/callgrind.h>

extern "C" {

__attribute__((visibility("default"))) void start() {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

// Writes the counts to a file whose header has `name`.
__attribute__((visibility("default"))) void stop(const char* name) {
  CALLGRIND_DUMP_STATS_AT(name);
  CALLGRIND_STOP_INSTRUMENTATION;
}

}  // extern "C"

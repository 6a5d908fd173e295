// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// One target as libFuzzer runs it: AIKIDO_FUZZ_TARGET names it.
#include "target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  aikido::fuzz::AIKIDO_FUZZ_TARGET.run({data, size});
  return 0;
}
